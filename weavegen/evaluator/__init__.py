"""The model as a judge: rubrics, calibration, and evaluation of a model's success."""
