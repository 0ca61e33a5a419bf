"""The one program that reads a node's hardware: POSIX shell, so that a worker needs nothing of ours.

It prints sections, each under a line ``@@ NAME WORDS``; what is not there is left out. Everything but ``nvidia-smi`` and three
small programs is the shell's own work, so that a reading costs little. Arguments: proc tree, sys tree, the store, the Engram
folder ("" for none).
"""

from __future__ import annotations

GPU_FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "temperature.gpu",
    "power.draw",
    "clocks.current.sm",
    "clocks.max.sm",
    "utilization.gpu",
    "memory.total",
    "memory.used",
    "memory.free",
)
THROTTLE = "clocks_throttle_reasons.active"  # the name that drivers of all ages take

SCRIPT = f"""
proc=$1; sys=$2; store=$3; engram=$4
show() {{ {{ read -r value <"$1/$2"; }} 2>/dev/null && echo "$2=$value"; }}
if command -v nvidia-smi >/dev/null 2>&1; then
  echo "@@ gpus"
  timeout 10 nvidia-smi --query-gpu={",".join(GPU_FIELDS)},{THROTTLE} --format=csv 2>/dev/null ||
    timeout 10 nvidia-smi --query-gpu={",".join(GPU_FIELDS)} --format=csv 2>/dev/null || echo "@@ failed gpus"
fi
for port in "$sys"/class/net/*; do
  name=${{port##*/}}
  case $name in lo|docker*|br-*|veth*|virbr*|ifb*|tun*|tap*|cni*|flannel*|'*') continue ;; esac
  echo "@@ netdev $name"
  for file in operstate carrier mtu speed statistics/rx_bytes statistics/tx_bytes; do show "$port" "$file"; done
done
for port in "$sys"/class/infiniband/*/ports/*; do
  [ -e "$port/state" ] || continue
  device=${{port%/ports/*}}
  echo "@@ rdma ${{device##*/}} ${{port##*/}}"
  for file in state rate counters/port_rcv_data counters/port_xmit_data \\
    hw_counters/packet_seq_err hw_counters/local_ack_timeout_err; do show "$port" "$file"; done
  index=0
  while {{ read -r gid <"$port/gids/$index"; }} 2>/dev/null; do
    case $gid in 0000:0000:0000:0000:0000:ffff:*)
      if {{ read -r type <"$port/gid_attrs/types/$index"; }} 2>/dev/null && [ "$type" = "RoCE v2" ]; then
        echo "gid=$index"
        break
      fi ;;
    esac
    index=$((index + 1))
  done
done
echo "@@ store"
stat -f -c 'block=%S
blocks=%b
free=%a' "$store" 2>/dev/null
if [ -n "$engram" ] && [ -e "$engram" ]; then
  echo "@@ engram"
  echo "type=$(stat -f -c %T "$engram" 2>/dev/null)"
  df -P "$engram" 2>/dev/null | while read -r device rest; do [ "$device" = "${{device#/}}" ] || readlink -f "$device"; done
fi
for resource in cpu io; do
  if [ -r "$proc/pressure/$resource" ]; then echo "@@ pressure $resource"; cat "$proc/pressure/$resource"; fi
done
echo "@@ disks"
cat "$proc/diskstats" 2>/dev/null
echo "@@ end"
"""
