"""Arguments of TRL's scripts, one module for each version of TRL; tools/trl_arguments/generate.py writes them."""
