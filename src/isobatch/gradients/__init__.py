"""The gradient laboratory: variance, correlation, bias and noise scale of policy gradients, with error bars."""
