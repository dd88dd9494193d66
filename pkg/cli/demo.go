package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
	"github.com/vipwalk/vipwalk/pkg/walk"
	"github.com/vipwalk/vipwalk/testdata/incidents"
)

// incident is one entry of testdata/incidents/index.json.
type incident struct {
	Name string `json:"name"`
	// Title says in a line what went wrong.
	Title string `json:"title"`
	// Args are the arguments and flags of the walk, as a user would give them.
	Args []string `json:"args"`
}

func (a *app) demoCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "demo [INCIDENT]",
		Short: "Walk an incident that is built into the program; no cluster needed",
		Long: "Walk an incident that is built into the program: a bundle captured from a real cluster in\n" +
			"which something was broken. No cluster, no root, no network. Without INCIDENT, list them\n" +
			"and walk the first one; the exit code is then 0, because nothing was asked. With INCIDENT\n" +
			"the exit code is that of any walk.",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeIncidents,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.demo(incidents.FS, &out, args)
		},
	}
	out.add(cmd.Flags())
	return cmd
}

func (a *app) demo(fsys fs.FS, out *outputFlags, args []string) error {
	render, err := out.renderer()
	if err != nil {
		return err
	}
	all, err := readIncidents(fsys)
	if err != nil {
		return err
	}
	if len(args) > 1 {
		return usageErrorf("demo takes one incident, got %d arguments", len(args))
	}
	chosen := all[0]
	if len(args) == 1 {
		if chosen, err = findIncident(all, args[0]); err != nil {
			return err
		}
	}
	r, err := a.walkIncident(fsys, chosen)
	if err != nil {
		return err
	}
	if len(args) == 0 && out.format == "text" && !out.quiet {
		if err := a.listIncidents(all); err != nil {
			return err
		}
	}
	if err := a.print(r, render, out); err != nil || len(args) == 0 {
		return err
	}
	if code := (criteria{failOn: diagnosis.Error}).code(r); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// listIncidents writes the list, and which of them the report below is about.
func (a *app) listIncidents(all []incident) error {
	var b strings.Builder
	fmt.Fprintf(&b, "incidents (%s demo NAME):\n", a.program)
	width := 0
	for _, i := range all {
		width = max(width, len(i.Name))
	}
	for _, i := range all {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, i.Name, i.Title)
	}
	fmt.Fprintf(&b, "\n$ %s %s\n", a.program, strings.Join(all[0].Args, " "))
	_, err := a.Out.Write([]byte(b.String()))
	return err
}

func readIncidents(fsys fs.FS) ([]incident, error) {
	raw, err := fs.ReadFile(fsys, "index.json")
	if err != nil {
		return nil, fmt.Errorf("read the list of incidents: %w", err)
	}
	var all []incident
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("read the list of incidents: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no incidents are built in")
	}
	return all, nil
}

func findIncident(all []incident, name string) (incident, error) {
	var names []string
	for _, i := range all {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	err := usageErrorf("no incident %q", name)
	if near := nearest(name, names); near != "" {
		return incident{}, err.hint("did you mean %s?", near)
	}
	return incident{}, err.hint("`demo` lists them: %s", strings.Join(names, ", "))
}

// walkIncident walks a built-in bundle as `vipwalk ARGS --bundle` would.
func (a *app) walkIncident(fsys fs.FS, i incident) (*diagnosis.Report, error) {
	s, err := incidentBundle(fsys, i.Name)
	if err != nil {
		return nil, fmt.Errorf("incident %s: %w", i.Name, err)
	}
	o, err := incidentOptions(i)
	if err != nil {
		return nil, fmt.Errorf("incident %s: %w", i.Name, err)
	}
	return walk.Walk(s, o), nil
}

// incidentOptions reads an incident's arguments with the walk's own flags.
func incidentOptions(i incident) (walk.Options, error) {
	f := &walkFlags{}
	fs := newFlagSet()
	f.choiceFlags.add(fs)
	f.sourceFlags.add(fs)
	if err := fs.Parse(i.Args); err != nil {
		return walk.Options{}, err
	}
	f.bundle = i.Name
	o, err := f.options(fs.Args())
	o.Version = programVersion()
	return o, err
}

// incidentBundle reads NAME.tar.gz, or the unpacked NAME/.
func incidentBundle(fsys fs.FS, name string) (*snapshot.Snapshot, error) {
	f, err := fsys.Open(name + ".tar.gz")
	if err == nil {
		defer f.Close()
		return snapshot.ReadBundle(f)
	}
	sub, err := fs.Sub(fsys, name)
	if err != nil {
		return nil, err
	}
	return snapshot.ReadBundleFS(sub)
}

func completeIncidents(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := readIncidents(incidents.FS)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, i := range all {
		out = append(out, i.Name+"\t"+i.Title)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
