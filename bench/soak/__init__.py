"""What goes wrong between two hosts, tried again and again under load: the fault matrix and the long soak."""
