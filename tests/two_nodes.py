"""A Ray cluster of two nodes on this machine. As a script it prints its address; a line on standard input removes the
second node, the end of the input ends the cluster."""

import os
import sys

from ray.cluster_utils import Cluster

# Found out sooner than in production that a node is gone.
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


def main() -> None:
    node = {"num_cpus": len(os.sched_getaffinity(0)), "object_store_memory": 80 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"_system_config": QUICK})
    second = cluster.add_node(**node)
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        print("removed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
