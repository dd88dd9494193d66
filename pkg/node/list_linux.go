package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// listTimeout is how long the program waits for the xtables lock, in seconds.
// The nft variant takes none; without a limit the library would say --wait.
const listTimeout = 5

// ListRules lists every table's rules through an iptables program of the nft
// variant, for a machine that has no iptables-save. The caller has made sure
// that the program is of the nft variant and that nf_tables and nft_compat are
// in the kernel: for a legacy program the very same calls create the tables
// that they list. Versions before 1.8.9 are refused, because older ones of the
// nft variant may make the base chains that they list.
//
// What runs is `PROGRAM --version`, and `PROGRAM -t TABLE -S [CHAIN] --wait 5`
// for each table and chain.
func ListRules(ctx context.Context, program string, v6 bool) (string, error) {
	proto := iptables.ProtocolIPv4
	if v6 {
		proto = iptables.ProtocolIPv6
	}
	ipt, err := iptables.New(iptables.Path(program), iptables.IPFamily(proto), iptables.Timeout(listTimeout))
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", program, err)
	}
	if v1, v2, v3 := ipt.GetIptablesVersion(); v1 < 1 || v1 == 1 && (v2 < 8 || v2 == 8 && v3 < 9) {
		return "", fmt.Errorf("not run: listing with iptables %d.%d.%d may create chains (1.8.9 and later do not), and there is no iptables-save", v1, v2, v3)
	}
	var b strings.Builder
	for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
		if err := listTable(ctx, &b, ipt, table); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// listTable writes one table as iptables-save does: the chains first. A table
// that does not exist lists its built-in chains with their default policy,
// which is what the kernel does with a packet then.
func listTable(ctx context.Context, b *strings.Builder, ipt *iptables.IPTables, table string) error {
	chains, err := ipt.ListChains(table)
	if err != nil {
		return fmt.Errorf("listing table %s: %w", table, err)
	}
	var heads, rules strings.Builder
	for _, chain := range chains {
		if err := ctx.Err(); err != nil {
			return err
		}
		lines, err := ipt.List(table, chain)
		if err != nil {
			return fmt.Errorf("listing chain %s of table %s: %w", chain, table, err)
		}
		for _, line := range lines {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 3 && fields[0] == "-P":
				fmt.Fprintf(&heads, ":%s %s [0:0]\n", fields[1], fields[2])
			case len(fields) == 2 && fields[0] == "-N":
				fmt.Fprintf(&heads, ":%s - [0:0]\n", fields[1])
			default:
				rules.WriteString(line + "\n")
			}
		}
	}
	fmt.Fprintf(b, "*%s\n%s%sCOMMIT\n", table, heads.String(), rules.String())
	return nil
}
