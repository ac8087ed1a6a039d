package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/state"
)

func newStateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "state",
		Short: "Show, correct or rebuild clusterctl's state of the cluster",
	}
	c.AddCommand(newStateList(), newStateShow(), newStateMove(), newStateRemove(), newStateRebuild())
	return c
}

func newStateList() *cobra.Command {
	var flags folderFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "list [ADDRESS…]",
		Short: "List the machines and objects that were applied",
		RunE: func(c *cobra.Command, args []string) error {
			_, s, err := flags.loadApplied(c, []string{flags.folder})
			if err != nil {
				return err
			}
			return listState(c, s, args, asJSON)
		},
	}
	flags.add(c, false)
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 0, appliedAddresses)
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// stateEntry is a line of state list.
type stateEntry struct {
	Address string `json:"address"`
	Type    string `json:"is"` // a machine with its IP address, or the kind of an object
	Name    string `json:"name"`
	Note    string `json:"note,omitempty"`
}

func stateEntries(s *state.State, of []string) (list []stateEntry, err error) {
	chosen := func(address string) bool {
		return len(of) == 0 || slices.ContainsFunc(of, func(a string) bool { return config.Includes(a, address) })
	}
	for _, address := range slices.Sorted(maps.Keys(s.Machines)) {
		m := s.Machines[address]
		var notes []string
		if _, member := s.Etcd[m.Machine.Name]; member {
			notes = append(notes, "member of the store")
		}
		if !m.HasJoined {
			notes = append(notes, "not applied to its end")
		}
		if m.IsCordoned {
			notes = append(notes, "cordoned by an interrupted run")
		}
		if m.Machine.PreventDestroy {
			notes = append(notes, "prevent_destroy")
		}
		if chosen(address) {
			list = append(list,
				stateEntry{address, "machine " + m.Machine.IP.String(), m.Machine.Name, strings.Join(notes, ", ")})
		}
	}
	for _, o := range s.Objects {
		if chosen(o.Address) {
			e := stateEntry{o.Address, o.Kind, o.FullName(), ""}
			if o.IsProtected {
				e.Note = "prevent_destroy"
			}
			list = append(list, e)
		}
	}
	for _, a := range of {
		if !slices.ContainsFunc(list, func(e stateEntry) bool { return config.Includes(a, e.Address) }) {
			return nil, unknownAddress(a)
		}
	}
	return list, nil
}

func unknownAddress(a string) error {
	return fmt.Errorf("%s: nothing was applied under this address; clusterctl state list shows what was. An address "+
		"with an index is quoted in a shell: 'machine.node[\"a\"]'", a)
}

func listState(c *cobra.Command, s *state.State, of []string, asJSON bool) error {
	list, err := stateEntries(s, of)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c, list)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	for _, e := range list {
		fmt.Fprintln(w, strings.TrimRight(strings.Join([]string{e.Address, e.Type, e.Name, e.Note}, "\t"), "\t"))
	}
	return w.Flush()
}

func printJSON(c *cobra.Command, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
	return err
}

func newStateShow() *cobra.Command {
	var flags folderFlags
	c := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Print the state of a machine, or of the objects of a block, as JSON, without keys",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, s, err := flags.loadApplied(c, []string{flags.folder})
			if err != nil {
				return err
			}
			if _, err := stateEntries(s, args); err != nil {
				return err
			}
			found := map[string]any{}
			for address, m := range s.Machines {
				if config.Includes(args[0], address) {
					found[address] = m
				}
			}
			objects := map[string][]state.Object{}
			for _, o := range s.Objects {
				if config.Includes(args[0], o.Address) {
					objects[o.Address] = append(objects[o.Address], o)
				}
			}
			for address, list := range objects {
				found[address] = list
			}
			return printJSON(c, found)
		},
	}
	flags.add(c, false)
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 1, appliedAddresses)
	return c
}

func newStateMove() *cobra.Command {
	var flags folderFlags
	c := &cobra.Command{
		Use:   "mv FROM TO",
		Short: "Rename an address in the state; nothing changes in the cluster",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return flags.changeState(c, func(s *state.State, _ string) error {
				n, err := decide.Rename(s, args[0], args[1])
				if err == nil && n == 0 {
					err = unknownAddress(args[0])
				}
				if err == nil {
					fmt.Fprintf(c.OutOrStdout(), "%s is %s now (%d in all).\n", args[0], args[1], n)
				}
				return err
			})
		},
	}
	flags.add(c, true)
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 1, appliedAddresses)
	return c
}

func newStateRemove() *cobra.Command {
	var flags folderFlags
	var force bool
	c := &cobra.Command{
		Use:   "rm ADDRESS…",
		Short: "Remove machines or objects from the state; they stay in the cluster",
		Long: `Remove machines or objects from the state; they stay in the cluster: clusterctl no longer looks after them, and takes them for new ones when they are
declared. To take a machine out of the cluster, or to delete an object, remove its block and apply.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return flags.changeState(c, func(s *state.State, _ string) error {
				list, err := stateEntries(s, args)
				if err != nil {
					return err
				}
				for _, e := range list {
					if m, ok := s.Machines[e.Address]; ok {
						if _, member := s.Etcd[m.Machine.Name]; member && !force {
							return fmt.Errorf("%s has a member of the store, which the others count: remove its block "+
								"and apply, and it leaves in good order. With -force it is forgotten all the same",
								e.Address)
						}
						delete(s.Machines, e.Address)
						delete(s.Etcd, m.Machine.Name)
					}
					s.Objects = slices.DeleteFunc(
						s.Objects,
						func(o state.Object) bool {
							return o.Address == e.Address && o.FullName() == e.Name &&
								o.Kind == e.Type
						},
					)
					fmt.Fprintf(c.OutOrStdout(), "forgotten: %s (%s %s)\n", e.Address, e.Type, e.Name)
				}
				return nil
			})
		},
	}
	flags.add(c, true)
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 0, appliedAddresses)
	c.Flags().BoolVar(&force, "force", false, "also members of the store")
	return c
}
