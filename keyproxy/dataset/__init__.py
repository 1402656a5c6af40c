"""The data set: what a task's folder holds, and how it is made from a case."""
