def hostile(): pass
