"""The learned Dec-POMDP: its components, how they are fitted, and the environment made of them."""

from marco.model.components import Component, Known, Model
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.model.early_stopping import ComponentFit
from marco.model.environment import DecentralisedEnvironment, LearnedEnvironment, ModelEnvironment
from marco.model.fit import ModelPlan, fit_model
from marco.model.report.summary import ModelReport, model_report, report_environment
from marco.model.rows import Data, gather
from marco.model.uncertainty import mean_uncertainty
from marco.model.views import (
    VIEWS,
    Centralised,
    Decentralised,
    JointObservation,
    View,
    ViewedPolicy,
    make_view,
)

__all__ = [
    "VIEWS",
    "Centralised",
    "Component",
    "ComponentFit",
    "Data",
    "Decentralised",
    "DecentralisedEnvironment",
    "FitConfig",
    "JointObservation",
    "Known",
    "LearnedEnvironment",
    "Model",
    "ModelConfig",
    "ModelEnvironment",
    "ModelPlan",
    "ModelReport",
    "PredictorConfig",
    "View",
    "ViewedPolicy",
    "fit_model",
    "gather",
    "make_view",
    "mean_uncertainty",
    "model_report",
    "report_environment",
]
