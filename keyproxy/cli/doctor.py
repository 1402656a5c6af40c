"""`keyproxy doctor`: which claims hold on this host."""
