"""The guard from the supervisor's side: started beside each rank, heard, restarted, and asked why a rank ended."""
