"""What is wrong on the nodes, said before anything starts: facts collected over ssh, pure rules, findings."""
