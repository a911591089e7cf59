"""Message IDs of the events that an administrator should know: ``journalctl -x`` explains each and says what to do.

The explanations are in ``packaging/catalog/openperouter.catalog``; a test compares both. An ID keeps its meaning.
"""

from typing import Final

READY: Final = "b3c8880de1944ed5af238a86b025c799"
RELOADED: Final = "9de8189b11f54890a9ac19db77497ba6"
ENDING: Final = "08dce5357af24dc2afcac321993f15aa"
STOPPED: Final = "3bcfe2ecd79f43808e0857c0d655f0a1"
UNHEALTHY: Final = "6afdd82a9ac74167a9d15a8c57257b09"
CHILD_FAILED: Final = "42e403ba583e472da276c185862434bf"
CHILD_FAILED_FOR_GOOD: Final = "fad30138878e4acbb616db1886606677"
BUG: Final = "02f3ced9c79241e6bcd834f6021be1c5"
PROBLEM: Final = "6fdded41be51444dbc43dcc00b83364e"
NEW_STATE: Final = "a7fd2fb615804b95a9a64a24d3cadc08"
FRR_VERIFIED: Final = "6ea15d3187374739b7ccf9160fae1c16"
FRR_DIFFERS: Final = "e21450c7e5ac43f2bb06a8d1b2462e94"
KERNEL_CONFIGURED: Final = "c565519036e0429d93e52240f2cf977f"
KERNEL_LACKS: Final = "865ad0105c7e437fb33effecccced559"
KERNEL_NOT_CONFIGURED: Final = "61959a2c3d5a4e1dab82490c2a74cc74"
SESSION_UP: Final = "50ec12e710754b35acab9ee9a265c563"
SESSION_DOWN: Final = "8fc8b8afcd9240f3b449e22f48d9b113"
VNI_WORKS: Final = "7727f9e6b87a4c3fa8cc7b2233bc6fae"
VNI_FAILS: Final = "7a15308f39c541c1aa4694ad5039fea7"
DAEMON_DOWN: Final = "83832e620a5d46b29e4bdd92aec3e5a7"
DAEMON_UP: Final = "58ffd11305af4873b83ac80e05b14f43"
DRIFT: Final = "72cf3bbcc4ea4298b6270d92fa2dd6c4"
WAITING_FOR_INTERFACE: Final = "58f93c9c45e944eb903a349ad8415f50"
MEMORY_LOST: Final = "54a40688207745f3815be6f383ec7b20"
CLIENT_REFUSED: Final = "e9e4f0f7fbf3416ea4055af955239c7e"
API_REACHABLE: Final = "0911d518708e91f41433934b0704fb88"
API_UNREACHABLE: Final = "28f235ca26f9402ee6f438610471974d"
