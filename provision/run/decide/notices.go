package decide

import (
	"fmt"
	"slices"
	"strings"

	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// ForeignFiles returns a line for each file with an effect on a machine that clusterctl did not write.
func ForeignFiles(machines []*session.Machine) (list []string) {
	for _, m := range machines {
		for _, c := range m.Changes {
			if c.Kind == step.ForeignFiles {
				list = append(list, fmt.Sprintf("%s: %s: clusterctl did not write this file, and %s. It stays.",
					m.Address, c.Name, c.Note))
			}
		}
	}
	slices.Sort(list)
	return list
}

// ProgramReceivers names the machines to which this program was sent for planning. It returns "" if there are none.
func ProgramReceivers(machines []*session.Machine) string {
	var names []string
	var bytes int64
	for _, m := range machines {
		if m.SentBytes > 0 {
			names, bytes = append(names, m.Address), m.SentBytes
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("clusterctl was sent to %s in order to plan: %s. Apply uses it there. It has %d MB in %s, "+
		"until apply updates or removes the machine.",
		plan.Number(len(names), "machine"), strings.Join(names, ", "), (bytes+999_999)/1_000_000, host.LibraryDir)
}
