package role_test

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"testing"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// inputsByRole returns the inputs of one machine, by its roles and form.
func inputsByRole(t *testing.T) map[string]role.Input {
	t.Helper()
	all := map[string]role.Input{}
	other := machine("other", "10.0.0.9", config.RoleControlPlane)
	for _, roles := range []string{"control-plane", "node", "control-plane node"} {
		for _, form := range []string{"", config.FormStaticPods} {
			for _, rest := range []bool{true, false} {
				m := machine("m", "10.0.0.1", strings.Fields(roles)...)
				c := cluster(m, other)
				c.ControlPlaneForm = form
				c.DNS.Replicas = 1
				s := newState("other")
				if rest {
					s = newState("m", "other")
					c.Etcd.Members, c.Etcd.MembersSet = 2, true
					c.VirtualAddress = netip.MustParseAddr("10.0.0.100")
					c.DNS.Replicas = 2
					c.Ingress = &config.Ingress{}
					c.Etcd.Snapshot = &config.Snapshot{Directory: "/var/lib/snapshots", S3: &config.S3Bucket{CA: "ca"}}
					c.API.Authentication, c.API.TokenWebhook, c.API.Admission, c.API.Authorization = "a", "b", "c", "d"
					c.Audit = config.Audit{Enabled: true, Webhook: "w"}
					c.Scheduler.Choose("config", "x")
					s.Keys.Encryption = state.Encryption{
						Keys:  []state.EncryptionKey{{Provider: "secretbox", Name: "k", Secret: []byte("s")}},
						Write: "secretbox:v1:k",
					}
				} else {
					c.Machines = append(c.Machines, machine("third", "10.0.0.8", config.RoleControlPlane))
				}
				all[fmt.Sprintf("%s, %s, all parts %v", roles, form, rest)] = role.Input{
					Cluster: c,
					Machine: m,
					State:   s,
					Files:   files{},
					Facts:   host.Facts{CanAdjustOOM: true},
				}
			}
		}
	}
	return all
}

// writtenFiles returns the files below /etc/kubernetes that the steps write, and those that they remove.
func writtenFiles(t *testing.T, in role.Input) (files, absent map[string]bool) {
	t.Helper()
	steps, err := role.Steps(in)
	if err != nil {
		t.Fatal(err)
	}
	files, absent = map[string]bool{}, map[string]bool{}
	for _, s := range steps {
		switch s := s.(type) {
		case *step.File:
			files[s.Path] = true
		case *step.Certificate:
			files[s.Path+".crt"], files[s.Path+".key"] = true, true
		case *step.Kubeconfig:
			files[s.Path] = true
		case *step.StaticPod:
			files[s.Path] = true
		case *step.Absent:
			absent[s.Path] = true
		case *step.RemoveUnit:
			absent[s.Path] = true
		case *step.RemoveStaticPod:
			absent[s.Path] = true
		case *step.KeepRelease:
			for _, p := range s.Paths {
				if strings.HasPrefix(p, role.PKI) || strings.HasSuffix(p, ".conf") && path.Dir(p) == role.Kubernetes {
					t.Errorf("a copy of %s is kept on the machine", p)
				}
			}
		}
	}
	return files, absent
}

func TestFilesOfFormerRolesAreRemoved(t *testing.T) {
	all := inputsByRole(t)
	for before, from := range all {
		files, _ := writtenFiles(t, from)
		for after, to := range all {
			got, absent := writtenFiles(t, to)
			for file := range files {
				if !strings.HasPrefix(file, role.Kubernetes+"/") && !strings.HasPrefix(file, "/var/lib/kubelet/") ||
					got[file] {
					continue
				}
				isGone := false
				for a := range absent {
					isGone = isGone || file == a || strings.HasPrefix(file, a+"/")
				}
				if !isGone {
					t.Errorf("%s, then %s: %s stays", before, after, file)
				}
			}
			for file := range got {
				for a := range absent {
					if file == a || strings.HasPrefix(file, a+"/") {
						t.Errorf("%s: %s is laid and removed", after, file)
					}
				}
			}
		}
	}
	laidByControl, _ := writtenFiles(t, all["control-plane, , all parts true"])
	for _, file := range []string{"/ca.key", "/etcd/ca.key", "/sa.key", "/encryption.yaml", "/" + certs.FrontProxyCA +
		".key"} {
		if !laidByControl[role.PKI+file] {
			t.Errorf("the test lays no %s", file)
		}
	}
}
