"""The master of Redis dies, and its replica takes over."""

from compose.lab.scenarios.base import Requirement
from compose.lab.scenarios.kill import Kill
from compose.lab.timeline import Fault


class RedisFailover(Kill):
    name = "redis-failover"
    fault = Fault("the Redis master is killed", lambda *_: ["redis"])
    has_replica = True
    requirement = Requirement(lambda policy: policy.has_ring, "without Redis nothing fails over")
