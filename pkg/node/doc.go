// Package node collects a node's state: from the machine that the program runs
// on (Local), from files and streams of the ordinary tools' output (ReadFiles),
// and in the form that `vipwalk node-state` prints (WriteState, ParseState).
//
// Reading this machine changes nothing on it. Programs are run by one function
// that knows every command line it may run (Allowed), and a program is run only
// after the kernel has shown that running it loads no module and creates no
// table: iptables-nft-save loads nf_tables where it is absent, and a legacy
// listing with -t creates the table that it lists.
package node
