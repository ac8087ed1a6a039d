package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"clusterctl/provision/step"
)

// WholeMachine stands for all daemons of a machine, when its system is upgraded or rebooted.
const WholeMachine = "the machine"

// RestartedDaemons returns the daemons that changes restart, in units or static pods. If all restart, it returns only
// WholeMachine.
func RestartedDaemons(changes []step.Change) (daemons []string) {
	for _, c := range changes {
		switch {
		case c.Action == step.Delete || c.Note == "enable":
		case c.Kind == step.KindUpgrade || c.Kind == step.KindReboot:
			return []string{WholeMachine}
		case c.Kind == "unit":
			daemons = append(daemons, strings.TrimSuffix(c.Name, ".service"))
		case c.Kind == "pod":
			daemons = append(daemons, strings.TrimPrefix(c.Name, "kube-system/"))
		}
	}
	return daemons
}

// DrainReason returns why changes require the node to be drained, or "" if they do not. Pods keep running while the
// kubelet, kube-proxy or kube-network restarts. They may not survive the replacement of the container runtime.
func DrainReason(changes []step.Change) string {
	for _, c := range changes {
		switch c.Kind {
		case step.KindReboot:
			return "it is rebooted"
		case step.KindUpgrade:
			return "its packages are upgraded"
		}
		if c.Kind == "unit" && c.Name == "containerd.service" && strings.HasPrefix(c.Note, "restart") {
			return "the container runtime restarts"
		}
	}
	return ""
}

// DefaultMaxUnavailable is how many nodes may be unavailable in a rolling change if the cluster block does not say.
const DefaultMaxUnavailable = "10%"

// Budget returns how many of the nodes may be unavailable in a rolling change. maxUnavailable is a number or a
// percentage, which is rounded down. The result is at least 1.
func Budget(maxUnavailable string, nodes int) int {
	if maxUnavailable == "" {
		maxUnavailable = DefaultMaxUnavailable
	}
	text, share := strings.CutSuffix(maxUnavailable, "%")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	if share {
		n = nodes * n / 100
	}
	return max(n, 1)
}

// CheckDrain returns why nodes may not be drained, or nil if they may. Nodes that are not ready count against the
// budget, unless they are in changed. ready has the nodes' Ready conditions.
func CheckDrain(budget int, ready map[string]string, changed []string) error {
	var broken []string
	for _, name := range slices.Sorted(maps.Keys(ready)) {
		if ready[name] != "True" && !slices.Contains(changed, name) {
			broken = append(broken, name)
		}
	}
	if len(broken) < budget {
		return nil
	}
	return fmt.Errorf("%s not ready (%s), and a rolling change may leave %s without pods at a time: mend that first, "+
		"or raise max_unavailable in the cluster's roll block", verbFor(len(broken), "node"),
		strings.Join(broken, ", "), Number(budget, "node"))
}

func verbFor(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}

// HasOtherReady reports whether another node is ready for a node's pods.
func HasOtherReady(node string, ready map[string]string) bool {
	for name, current := range ready {
		if name != node && current == "True" {
			return true
		}
	}
	return false
}

// Health is the health of a machine of the control plane: why its store member and its API server do not answer. Empty
// means that they answer.
type Health struct {
	Name      string
	HasMember bool // it has a member of the store
	Etcd      string
	API       string
	IsReached bool // this run is connected to the machine
}

func (h Health) isHealthy() bool { return h.Etcd == "" && h.API == "" }

// CheckRestart returns why units of a machine of the control plane may not be restarted, or nil if they may. Restarting
// a daemon that does not work is always allowed. list has all machines.
func CheckRestart(name string, units []string, list []Health) error {
	i := slices.IndexFunc(list, func(h Health) bool { return h.Name == name })
	if i < 0 || len(list) < 2 {
		return nil
	}
	own := list[i]
	stops := func(daemon string) bool {
		return slices.Contains(units, daemon) || slices.Contains(units, WholeMachine)
	}
	if stops("etcd") && own.HasMember && own.Etcd == "" {
		var up, members int
		var broken []string
		for _, h := range list {
			switch {
			case !h.HasMember:
				continue
			case h.Etcd != "":
				broken = append(broken, h.Name+": "+h.Etcd)
			case h.Name != name:
				up++
			}
			members++
		}
		// A store of one or two members, all of them healthy, cannot be changed without losing its majority.
		if majority := members/2 + 1; up < majority && (len(broken) > 0 || members > 2) {
			return fmt.Errorf("it would cost etcd its majority: %d of %d members would be left, %d must agree (%s). %s",
				up, members, majority, strings.Join(broken, "; "), adviseRepair(list, "etcd",
					func(h Health) bool { return h.HasMember && h.Etcd != "" }))
		}
	}
	if stops("kube-apiserver") && own.API == "" {
		var broken []string
		for _, h := range list {
			if h.Name != name && h.API == "" {
				return nil
			}
			if h.Name != name {
				broken = append(broken, h.Name+": "+h.API)
			}
		}
		return fmt.Errorf("its API server is the only one that answers (%s). %s", strings.Join(broken, "; "),
			adviseRepair(list, "kube-apiserver", func(h Health) bool { return h.Name != name && h.API != "" }))
	}
	return nil
}

// adviseRepair advises what to do about machines that do not work. A machine that can be reached must not be removed
// from the configuration, because its copy of the data would be lost.
func adviseRepair(list []Health, daemon string, broken func(Health) bool) string {
	var here, away []string
	for _, h := range list {
		switch {
		case !broken(h):
		case h.IsReached:
			here = append(here, h.Name)
		default:
			away = append(away, h.Name)
		}
	}
	var text []string
	if len(here) > 0 {
		text = append(text, fmt.Sprintf("On %s, which can be logged in to, journalctl -u %s says what is wrong: mend "+
			"that, and leave it in the configuration", strings.Join(here, ", "), daemon))
	}
	if len(away) > 0 {
		text = append(text, fmt.Sprintf("Bring %s back; only one that is gone for good is taken out of the "+
			"configuration, so that the others go on without it", strings.Join(away, ", ")))
	}
	return strings.Join(append(text, "Then apply again"), ". ")
}

// ControlOrder returns the order in which machines of the control plane change. Those that do not work come first,
// because changing them costs nothing.
func ControlOrder(names []string, list []Health) []string {
	broken := map[string]bool{}
	for _, h := range list {
		broken[h.Name] = !h.isHealthy()
	}
	order := slices.Clone(names)
	slices.SortStableFunc(order, func(a, b string) int {
		switch {
		case broken[a] && !broken[b]:
			return -1
		case broken[b] && !broken[a]:
			return 1
		}
		return 0
	})
	return order
}

// CheckLeave returns why a machine may not leave the control plane, or nil if it may. list has the machines that stay.
func CheckLeave(name string, list []Health) error {
	members, answering, servers := 0, 0, 0
	var ill []string
	for _, h := range list {
		if h.API == "" {
			servers++
		}
		if h.HasMember {
			members++
		}
		if h.HasMember && h.Etcd == "" {
			answering++
		}
		if !h.isHealthy() {
			ill = append(ill, fmt.Sprintf("%s: %s", h.Name, strings.TrimSpace(h.Etcd+" "+h.API)))
		}
	}
	switch {
	case answering <= members/2:
		return fmt.Errorf("without %s the store would have no majority: %s", name, strings.Join(ill, "; "))
	case servers == 0:
		return fmt.Errorf("without %s no API server would answer: %s", name, strings.Join(ill, "; "))
	}
	return nil
}
