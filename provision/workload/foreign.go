package workload

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// clusterManagers are the managers of objects that the cluster creates by itself. Users may declare such objects in
// order to change them, for example a namespace's default service account.
var clusterManagers = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet",
	"metrics-server"}

// foreignError reports that an object exists and belongs to someone else.
type foreignError struct{ address, manager string }

func (e foreignError) Error() string {
	return fmt.Sprintf("it is there already, made by %s, and was not applied from here. To take it over, write import "+
		"{ to = %s }; otherwise give yours another name", e.manager, quoteAddress(e.address))
}

// plainAddress matches an address that needs no quotes in a configuration.
var plainAddress = regexp.MustCompile(`^[a-z]+\.[A-Za-z0-9_-]+$`)

func quoteAddress(address string) string {
	if plainAddress.MatchString(address) {
		return address
	}
	return strconv.Quote(address)
}

// markAdoptable sets CanAdopt for objects that may be applied over existing ones: those that were applied before, and
// those with an import block.
func markAdoptable(desired []Desired, c *config.Cluster, before []state.Object) {
	applied := map[state.Object]bool{}
	for _, o := range before {
		applied[o.Identity()] = true
	}
	for i, d := range desired {
		desired[i].CanAdopt = d.IsNeverPruned || d.Source == (config.Source{}) || d.Object.GetKind() == "Node" ||
			applied[d.reference().Identity()] ||
			slices.ContainsFunc(c.Imports,
				func(m config.Import) bool { return config.Includes(m.To, d.Address) || m.To == d.Block })
	}
}

// creatorOf returns who created an existing object, or "" if this client or the cluster itself created it.
func (l *Live) creatorOf(live *unstructured.Unstructured) string {
	for _, f := range live.GetManagedFields() {
		if slices.Contains(clusterManagers, f.Manager) && f.Subresource == "" {
			return ""
		}
	}
	return l.foreignManagers(live)
}
