"""Programs that another compiler made: read, checked, priced and told beside the best one."""
