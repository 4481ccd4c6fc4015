def files(): pass
