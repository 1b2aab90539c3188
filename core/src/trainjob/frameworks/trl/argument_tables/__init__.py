"""Arguments of TRL's scripts, one module for each version of TRL; tools/trl/argument_table.py writes them."""
