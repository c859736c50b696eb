# A runner of rsl_rl in the manner of Isaac Lab; isobatch reads such files without executing them.
from isaaclab.utils import configclass
from isaaclab_rl.rsl_rl import RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg


@configclass
class QuadrupedRunnerCfg(RslRlOnPolicyRunnerCfg):
    num_steps_per_env = 24
    max_iterations = 1500
    algorithm = RslRlPpoAlgorithmCfg(
        num_learning_epochs=5,
        num_mini_batches=4,
        learning_rate=1.0e-3,  # where the schedule starts
        schedule="adaptive",
        desired_kl=0.01,
        gamma=0.99,
        lam=0.95,
        clip_param=0.2,
        use_clipped_value_loss=True,
        value_loss_coef=1.0,
        entropy_coef=0.005,
        max_grad_norm=1.0,
    )
