// Package ipvs reads the virtual servers of a node's IPVS from text: what
// ipvsadm -Ln prints (with or without --stats, --rate, --persistent-conn,
// --thresholds), what ipvsadm -Sn saves, and /proc/net/ip_vs, whose numbers are
// hexadecimal. It does no I/O, and never asks the kernel.
package ipvs
