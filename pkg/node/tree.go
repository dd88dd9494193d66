package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A sosreport is a folder of its host's files, with what commands printed below
// sos_commands/PLUGIN: a file is called as its command was, in which everything
// but letters, digits, dots and dashes is underscores. Of its thousands of files
// these are the node's state, as patterns.
var sosFiles = []string{
	"etc/hostname",
	"proc/modules",
	"proc/net/ip_tables_names", "proc/net/ip6_tables_names", "proc/net/ip_vs", "proc/net/stat/nf_conntrack",
	"sos_commands/*/iptables-save*", "sos_commands/*/ip6tables-save*",
	"sos_commands/*/iptables_-t_*", "sos_commands/*/ip6tables_-t_*", "sos_commands/*/iptables_-vnxL", "sos_commands/*/ip6tables_-vnxL",
	"sos_commands/*/nft_list_ruleset", "sos_commands/*/nft_-*list_ruleset",
	"sos_commands/*/ipset_save", "sos_commands/*/ipset_list", "sos_commands/*/ipvsadm_-Ln", "sos_commands/*/ipvsadm_-Sn",
	"sos_commands/*/conntrack_-L*",
	"sos_commands/*/ip_-d_address", "sos_commands/*/ip_addr", "sos_commands/*/ip_address",
	"sos_commands/*/ip_route_show_table_all", "sos_commands/*/ip_-6_route_show_table_all",
	"sos_commands/*/ip_-4_rule_list", "sos_commands/*/ip_-6_rule_list",
	"sos_commands/*/sysctl_-a", "sos_commands/kernel/uname_-a",
}

// sosInstead names the listings that repeat another one.
var sosInstead = map[string]string{
	"iptables_-vnxL":             "iptables_-t_filter_",
	"ip6tables_-vnxL":            "ip6tables_-t_filter_",
	"ip_addr":                    "ip_-d_address",
	"ip_address":                 "ip_-d_address",
	"ip_-6_route_show_table_all": "ip_route_show_table_all", // which has both families, and so the other one's again
}

// tree reads a folder that a tool wrote in a layout of its own, and says whether
// it is one.
func (r *fileReader) tree(node, root string) (is bool, err error) {
	if roots := sosReports(root); len(roots) > 0 {
		return true, r.sosReports(node, roots)
	}
	for _, name := range []string{"cluster-scoped-resources", "namespaces"} {
		if found, err := filepath.Glob(filepath.Join(root, "*", name)); err == nil && len(found) > 0 || isFolder(filepath.Join(root, name)) {
			return true, errors.New("a must-gather, which holds objects and no node's state: give it with --objects (a node's own is a sosreport: oc debug node/NODE, then sos report)")
		}
	}
	if _, err := os.Stat(filepath.Join(root, "nodes.json")); err == nil {
		return true, errors.New("a kubectl cluster-info dump, which holds objects and no node's state: give it with --objects")
	}
	return false, nil
}

// sosReports finds the sosreports that a folder is, or holds.
func sosReports(root string) []string {
	if isSosReport(root) {
		return []string{root}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // reading the folder will say so
	}
	var out []string
	for _, e := range entries {
		if full := filepath.Join(root, e.Name()); isSosReport(full) {
			out = append(out, full)
		}
	}
	return out
}

func isSosReport(root string) bool {
	info, err := os.Stat(filepath.Join(root, "sos_commands"))
	return err == nil && info.IsDir()
}

// sosReports reads sosreports, each of its host; node is the name that the user
// gave.
func (r *fileReader) sosReports(node string, roots []string) error {
	if node != "" && len(roots) > 1 {
		return fmt.Errorf("holds %d sosreports, and cannot all be %s's", len(roots), node)
	}
	for _, root := range roots {
		paths := sosPaths(root)
		if len(paths) == 0 {
			return fmt.Errorf("the sosreport %s has none of the files that tell a node's state (sos_commands/firewall_tables, sos_commands/networking)", root)
		}
		if err := r.files(node, root, paths); err != nil {
			return err
		}
	}
	return nil
}

func sosPaths(root string) []string {
	fsys := os.DirFS(root)
	var names []string
	for _, pattern := range sosFiles {
		found, err := fs.Glob(fsys, pattern)
		if err != nil {
			continue // the patterns are ours and well-formed
		}
		for _, name := range found {
			// Empty is what a command leaves that was not run, for want of a module.
			if info, err := fs.Stat(fsys, name); err == nil && info.Mode().IsRegular() && info.Size() > 0 && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		other := sosInstead[path.Base(name)]
		return other != "" && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(path.Base(n), other) })
	})
	var out []string
	for _, name := range names {
		out = append(out, filepath.Join(root, filepath.FromSlash(name)))
	}
	return out
}
