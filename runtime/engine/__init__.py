"""From a batch to chosen tokens: the plan of the model, and sampling."""
