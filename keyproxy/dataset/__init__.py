"""The data set: from a case to the task that Harbor runs."""
