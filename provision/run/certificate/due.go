package certificate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

// rotateNames maps authorities and keys to their names in the arguments of clusterctl certs rotate.
var rotateNames = map[string]string{
	certs.ClusterCA:      "cluster-ca",
	certs.EtcdCA:         "etcd-ca",
	certs.FrontProxyCA:   "front-proxy-ca",
	state.ServiceAccount: "service-account",
}

// DueKeys returns which keys must be replaced because they were on machines that have left the control plane. The
// result has a line for each machine.
func DueKeys(s *state.State) (list []string) {
	var order []string
	byMachine := map[string][]state.Exposed{}
	for _, e := range s.DueKeys() {
		if byMachine[e.Machine] == nil {
			order = append(order, e.Machine)
		}
		byMachine[e.Machine] = append(byMachine[e.Machine], e)
	}
	for _, machine := range order {
		var rotate, drop, encryption []string
		for _, e := range byMachine[machine] {
			name, r := rotateNames[e.Name], s.Rotations[e.Name]
			switch {
			case e.IsEncryption():
				encryption = append(encryption, e.Name)
			case r.Phase != "":
				drop = append(drop, name)
			default:
				rotate = append(rotate, name)
			}
		}
		text := fmt.Sprintf("keys were on %s, which left the control plane on %s", machine,
			byMachine[machine][0].At.UTC().Format(time.DateOnly))
		if len(rotate) > 0 {
			text += "; due for replacement: " + strings.Join(rotate,
				", ") + " (clusterctl certs rotate " + strings.Join(rotate, " ") + ", then apply)"
		}
		if len(drop) > 0 {
			text += "; replaced, and still trusted: " + strings.Join(drop, ", ")
		}
		if len(encryption) > 0 {
			slices.Sort(encryption)
			text += "; due for replacement: " + strings.Join(encryption,
				", ") + " (give key in cluster { encryption { } } another name, then apply)"
		}
		list = append(list, text+".")
	}
	return list
}
