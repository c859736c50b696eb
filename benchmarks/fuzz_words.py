"""What `fuzz.py` begins with and changes: command lines and files that are valid, and what may take their place."""

import json

from isobatch.laboratory.results import FORMAT
from isobatch.settings.files import dump_config
from isobatch.settings.presets import preset

LINES = [
    "train", "train --algo ppo-ewma --env CartPole-v1 --num-seeds 4 --json",
    "train --algo ppg --env Pendulum-v1 --num-envs 8 --num-steps 256 --total-timesteps 491520 --quiet",
    "train --algo reinforce --num-envs 4 --num-steps 500 --learning-rate 1e-3 --run-dir out",
    "train --algo a2c --env gymnasium/LunarLander-v3 --env-kwargs {gravity:-3} --num-envs 16",
    "train --config settings.yaml --gamma 0.9 --hidden-sizes 64,64 --seed 7",
    "train --preset atari-ppo --env Pong-misc",
    "train --staleness 4 --stale-objective decoupled --noise-scale --normalize-rewards true", "train --resume run",
    "train --resume --run-dir run --total-timesteps 1e6", "train --init-from run", "rescale --to-num-envs 4",
    "rescale --algo ppo-ewma --num-envs 64 --num-steps 256 --to-num-envs 1 --json",
    "rescale --algo ppg-ewma --factor 4 --without phase-batch --json", "rescale run --factor 2 --json",
    "rescale --to-devices 4 --devices 1 --use linear-adam", "rescale --to-optimization-batch 64 --critical-batch 500",
    "rescale --from-zoo zoo.yml --algo ppo --env Inherited-v0 --factor 2",
    "rescale --config settings.yaml --factor 2",
    "rescale --from-cleanrl '--num-envs 8 --num-steps 128 --learning-rate 2.5e-4' --to-num-envs 32 --json",
    "rescale --from-rllib rllib.yaml --factor 2 --as skrl", "rescale --from-skrl skrl.yaml --num-envs 8 --factor 2",
    "rescale --from-torchrl torchrl.yaml --factor 2 --out new.yaml", "rescale --to-num-steps 64 --out out/new.yaml",
    "advise", "advise --num-envs 64 --critical-batch 4000 --json", "advise run --json", "advise --algo a2c --cores 2",
    "advise --action-dim 6 --env-seconds 1e-4 --update-seconds 1e-3 --continuous", "envs", "envs lunar --json",
    "envs envpool/ atari", "study list --json", "study run adam-rule --scale paper", "study report nowhere",
    "eval run --episodes 5 --json", "export run --out policy.npz", "play run --speed 2",
    "plot run --metric losses/policy_loss --out curve.svg", "diagnose run --sections lags --chains 16",
    "plan run --json", "plan run --score 1.2 --critical-batch 500 --plan-seeds 2 --out plan.png",
    "plan --env CartPole-v1 --num-envs 16 --num-steps 64 --total-timesteps 1e5 --seed 3 --json",
    "tune --env CartPole-v1 --json", "tune --search learning_rate=1e-4:1e-2 --also num_minibatches=2,4,8 --budget 1e9",
    "tune --algo ppo-ewma --search proximal_age=64:4096 --sampler random --at-num-envs 16 --for-num-envs 64 --json",
    "tune --from-defaults --gamma 0.9 --num-seeds 2 --group 8 --lanes 4 --confirm-seeds 3 --seed 4 --out search",
    "tune --env gymnasium/CartPole-v1 --search gae_lambda=0.5:1 --search ent_coef=0:0.1 --keep minibatch-size --quiet",
    "train --num-envs 8 --batch-schedule 0:8,0.5:16 --run-dir out", "train --resume run --batch-schedule 0:4,0.5:8",
    "train --batch-schedule 0:64,0.2:256,0.6:512 --json",
    "train --env gymnasium/CartPole-v1 --actors 2 --max-lag 2 --json",
    "train --env gymnasium/CartPole-v1 --actors thread:4 --max-lag 4096 --schedule fixed --num-envs 8 --run-dir out",
    "train --env gymnasium/CartPole-v1 --algo ppo-ewma --actors process:2 --max-lag 1-iteration --replay run",
    "diagnose run --sections branches --branch-factors 0.5,1,2 --branch-seeds 4 --branch-samples 4096 --json",
    "diagnose --env CartPole-v1 --sections branches,geometries --branch-episodes 4 --time 60 --quiet",
    "rescale --use surge --critical-batch 500 --to-num-envs 64 --json", "rescale --use beta2-half-life --factor 4",
    "rescale --use clip-noise --critical-batch 1e4 --max-grad-norm 0.5 --factor 0.25 --json",
    "rescale --optimizer adam-micro --micro-batch-size 32 --use micro-linear --to-num-envs 32 --json",
    "rescale run --critical-batch measured --factor 2 --json", "rescale --critical-batch run --to-num-envs 64",
    "verify --env CartPole-v1 --seed 1", "train --help --algo ppg", "rescale --help-all", "help train", "--version",
    "",
]  # fmt: skip
VALUES = [
 "", " ", "0",
    "-1", "1", "2", "3", "7", "1.5", "1e3", "1e17", "1e18", "1e19", "1e308", "1e309", "-1e400", "nan", "inf", "-inf",
    "9" * 30, "9" * 400, "9" * 5000, "0x10", "1_000", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}",
    "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "true", "False", "on",
    "none", "None", "null", "[]", "[1,2", "1,2,x", "64,", ",", "{}", "{a: 1}", "{a: &a [*a]}", "[" * 1200, "{1: 2}",
    "a: b", "[/x]", "[bold]", ":smile:", "%s", "%(prog)s", "{0}", "--", "-", "---", "-x", "--=", "=", "$(id)", "`id`",
    "'", '"', "\\", "\n", "\t", "\r", "\x1b[2J", "\x07", "\udcff", "\N{GREEK SMALL LETTER PI}", "\N{PILE OF POO}",
    "a" * 10_000, "../..", ".", "..", "/dev/null/x", "/proc/nope/x", "run", "out", "settings.yaml", "missing.yaml",
    "a" * 300 + ".yaml", "*", "~", "CartPole-v1", "CartPole-v9", "Pendulum-v1", "gymnasium/", "envpool/",
    "envpool/Pong-v5", "ALE/Pong-v5", ":Id", "no_such_module:Id", "..:Id", "json:Id", "gymnasium/json:Id",
    "Probe-Delay", "MNISTBandit-bsuite", "ppo", "ppg-ewma", "reinforce", "atari-ppo", "clip", "kl", "envs", "shuffle",
    "decoupled", "sgd", "impala", "newest", "best", "all", "iteration-batch-only", "adam-sqrt", "zoo", "cleanrl",
    "rllib", "skrl", "torchrl", "surge", "clip-noise", "beta2-half-life", "micro-linear", "measured", "branches", "tpe",
    "cma-es", "random", "thread:2", "ray:0", "process:1e9", "0:64,0.2:256", "0:64,0.2:64", "0.5:64", "0:64,1:8", "0:0",
    "0:64,0.2:", "0:64,nan:8", "0:1e18,0.5:1", "learning_rate", "learning_rate=0:1", "learning_rate=nan:1",
    "gamma=0.9:1.5", "gamma=1:0.9", "gamma=0.9999999999999998:0.9999999999999999", "num_envs=1e17,2e17",
    "num_minibatches=3,5", "clip_eps=-1:1", "env=a,b", "learning_rate=1e-320:1e308", "hidden_sizes=64,64", "=", "x=",
    "=1:2", "proximal_age=0:1e308", "activation=tanh,relu,tanh", "2-iterations", "1e9-iterations", "0.5,1,2",
    "1e-9,1e9",
]  # fmt: skip
FLAGS = [  # besides those of settings
    "seed", "num_seeds", "to_num_envs", "factor", "json", "search", "also", "budget", "group", "lanes", "confirm_seeds",
    "sampler", "at_num_envs", "for_num_envs", "score", "critical_batch", "plan_seeds", "batch_schedule", "use",
    "without", "sections", "branch_factors", "branch_seeds", "branch_samples", "actor_kind", "replay", "devices",
]  # fmt: skip
NUMBERS = [
    "0", "1", "2", "3", "4", "5", "7", "8", "16", "64", "96", "100", "128", "256", "1000", "1024", "4096", "65536",
    "1e6", "1e9", "1e12", "1e15", "1e17", "9223372036854775807", "0.5", "0.9", "0.99", "0.999", "0.9999999999999999",
    "1e-3", "1e-8", "1e-300", "5e-324", "1e300", "1.7e308", "inf", "2147483647",
]  # fmt: skip
PIECES = [
    "num_envs", "env", "algo", "env_kwargs", "hidden_sizes", "learning_rate", "preset", "stale_objective", "gamma",
    "seed", ": ", "\n", "- ", "? ", "[", "]", "{", "}", "&a ", "*a", "<<: *a", "!!int ", "!!float x", "!!timestamp x",
    "!!bool 3", "!!binary ==", "!!python/object/apply:os.getcwd []", "!!set", "|", ">", "#", "'", '"', "\0", "\x1b",
    "\t", "%YAML 9", "---", "...", "2020-13-45", "2020-01-01", "1:30:00", "0x" + "f" * 5000, "1e400", ".nan", "-.inf",
    "~", "=", "\ufeff", "[" * 1200, "{a: " * 600, "\udcff", "1" * 5000, "x" * 100_000, "lin_0.001",
    "!!python/tuple [1]", "dict(a=1)", "num_envs: 0", "env: 5", "self: 1", "iteration,seed,env_steps", ",,,", "nan",
    "inf", "-1", "1e18",
]  # fmt: skip
RUN = preset("ppo", "Probe-Delay", num_envs=4, num_steps=8, num_minibatches=2, total_timesteps=384)
BRANCHES = "run/diagnosis/000000012-branches.json"  # a measurement, which counts if it has the settings of the run
MEASURED = {
    "critical_batch": {"value": 64, "low": 32, "high": None},
    "noise_scale": {"value": 31, "low": 21, "high": 41},
}
FILES = {
    "settings.yaml": "algo: ppo-ewma\nenv: CartPole-v1\nnum_envs: 8\nhidden_sizes: [64, 64]\n"
    "env_kwargs: {}\ngamma: 0.9\n",
    "zoo.yml": "defaults: &d\n  n_envs: 8\n  n_timesteps: !!float 1e5\n  policy: 'MlpPolicy'\n"
    "Inherited-v0:\n  <<: *d\n  n_steps: 32\n  batch_size: 256\n  learning_rate: lin_0.001\n  normalize: true\n",
    "rllib.yaml": "train_batch_size: 4000\nminibatch_size: 128\nnum_epochs: 30\nlr: 5.0e-5\nnum_env_runners: 2\n",
    "skrl.yaml": "rollouts: 16\nlearning_epochs: 8\nmini_batches: 2\nlearning_rate: 1.0e-3\ndiscount_factor: 0.99\n",
    "torchrl.yaml": "collector:\n  frames_per_batch: 2048\n  total_frames: 1000000\nloss:\n  mini_batch_size: 64\n"
    "  ppo_epochs: 10\noptim:\n  lr: 3.0e-4\n",
    "run/config.yaml": dump_config(RUN),
    "run/run.json": '{"seed": 0, "num_seeds": 1, "log_interval": 1, "versions": {}}\n',
    BRANCHES: json.dumps(
        {"key": {"format": FORMAT, "settings": RUN.to_dict() | {"iteration": 12}}, "result": MEASURED}
    ),
    "run/metrics.csv": "iteration,seed,env_steps,charts/episodic_return,charts/episodic_length,charts/episodes,"
    "losses/policy_loss,losses/approx_kl,noise/trace,noise/signal\n"
    "1,0,32,1.0,2,16,0.1,0.01,9,0.1\n2,0,64,1.5,2,16,0.1,0.01,9,0.1\n",
}
READERS = {
    "settings.yaml": ["rescale --config settings.yaml --factor 2 --json", "advise --config settings.yaml",
                      "train --config settings.yaml"],
    "zoo.yml": ["rescale --from-zoo zoo.yml --algo ppo --env Inherited-v0 --factor 2 --json"],
    "rllib.yaml": ["rescale --from-rllib rllib.yaml --factor 2 --json", "rescale --from-rllib rllib.yaml --factor 2"],
    "skrl.yaml": ["rescale --from-skrl skrl.yaml --num-envs 8 --factor 2 --json"],
    "torchrl.yaml": ["rescale --from-torchrl torchrl.yaml --num-envs 8 --factor 2 --json"],
    "run/config.yaml": ["rescale run --factor 2 --json", "advise run", "train --resume run", "eval run"],
    "run/run.json": ["train --resume run", "eval run", "export run --out policy.npz"],
    "run/metrics.csv": ["advise run --json", "plot run --out curve.svg --json", "train --resume run",
                        "rescale --factor 2 --critical-batch run", "plan run --critical-batch 64 --json"],
    BRANCHES: ["rescale run --critical-batch measured --factor 2 --json", "plan run"],
}  # fmt: skip
