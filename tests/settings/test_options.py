"""Options of a run by keyword: names that are wrong, values as people type them, seeds that fit."""

import pytest

from isobatch.errors import UsageError
from isobatch.settings.options import Options


def test_keywords_are_converted_as_flags_are():
    options = Options.from_keywords(seed="3", num_seeds=2.0, tensorboard="off", env_timeout="1e2", wandb_project="none")
    assert options == Options(seed=3, num_seeds=2, tensorboard=False, env_timeout=100.0, wandb_project=None)
    assert options.seeds == [3, 4]


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        (dict(sed=1), "unknown option 'sed'; did you mean seed, num_seeds?"),
        (dict(chekpoint_interval=1), "unknown option 'chekpoint_interval'; did you mean checkpoint_interval"),
        (dict(num_envs=4), "'num_envs' is a setting of the config, not an option of a run: use config.replace("),
        (dict(seed=1.5), "seed=1.5 is not valid: use a whole number."),
        (dict(tensorboard="maybe"), "tensorboard='maybe' is not valid: use true or false."),
        (dict(seed=2**31), "seed=2147483648 must be at most 2147483647."),
        (dict(seed=2**63), "seed=9223372036854775808 must be at most 2147483647."),
        (dict(seed=2**31 - 1, num_seeds=2), "seed + num_seeds - 1=2147483648 must be at most 2147483647."),
        (dict(num_seeds=2**62), "must be at most 100000."),
        (dict(keep_checkpoints=0), "keep_checkpoints=0 must be at least 1."),
    ],
)  # fmt: skip
def test_wrong_keywords_are_one_sentence(keywords, sentence):
    with pytest.raises(UsageError) as caught:
        Options.from_keywords(**keywords)
    assert sentence in str(caught.value)


def test_the_largest_seed_is_one_that_jax_tells_from_others():
    """JAX keeps 32 bits of a seed, so 2^32 would be 0; environments outside JAX keep 31 of them."""
    import jax

    assert Options(seed=2**31 - 1).seeds == [2**31 - 1]
    assert (jax.random.key_data(jax.random.key(2**31 - 1)) != jax.random.key_data(jax.random.key(0))).any()
    assert (jax.random.key_data(jax.random.key(2**32)) == jax.random.key_data(jax.random.key(0))).all()
