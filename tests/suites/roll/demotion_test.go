package roll

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// demotedConfig returns the configuration of three machines, of which the named ones are the control plane and the
// others are nodes.
func demotedConfig(control string) string {
	text := &strings.Builder{}
	text.WriteString("cluster \"roll\" {}\n")
	for _, key := range []string{"1", "2", "3"} {
		r := "node"
		if strings.Contains(control, key) {
			r = "control-plane"
		}
		fmt.Fprintf(text, "machine \"c%s\" {\n  address = \"10.99.0.1%s\"\n  name = \"c-%s\"\n  roles = [\"%s\"]\n  "+
			"ssh { user = \"root\" }\n}\n", key, key, key, r)
	}
	return text.String()
}

// checkMembers checks that etcd status lists exactly the machines of the control plane, all voting, and no problem.
func checkMembers(ctx context.Context, t *testing.T, c *cluster.Cluster, control string) {
	t.Helper()
	out, err := cluster.Output(c.Clusterctl(ctx, "etcd", "status", "-json"))
	if err != nil {
		t.Errorf("%s: etcd status: %v\n%s", control, err, out)
	}
	var status struct {
		Members []struct {
			Name      string
			Learner   bool
			Unstarted bool
			Error     string
		}
		Majority bool
		Trouble  []string
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%s: etcd status: %v\n%s", control, err, out)
	}
	var names []string
	for _, m := range status.Members {
		names = append(names, strings.TrimPrefix(m.Name, "c-"))
		if m.Learner || m.Unstarted || m.Error != "" {
			t.Errorf("%s: etcd status lists the member %+v", control, m)
		}
	}
	slices.Sort(names)
	if strings.Join(names, "") != control || !status.Majority || len(status.Trouble) > 0 {
		t.Errorf("%s: etcd status lists the members %q, a majority %t and the problems %q", control, names,
			status.Majority, status.Trouble)
	}
}

// A machine that leaves the control plane but stays in the cluster first leaves etcd, and keeps no keys. No request
// fails meanwhile.
func TestDemotionsUnderLoadFailNoRequest(t *testing.T) {
	for _, steps := range [][]string{{"123", "12", "1"}, {"123", "1"}} {
		t.Run(strings.Join(steps, "-"), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*applyTimeout)
			defer cancel()
			c := startCluster(ctx, t, "demotion", demotedConfig(steps[0]))
			work := startLoad(ctx, t, newCredentials(ctx, t, c))
			defer work.finish()
			for _, control := range steps[1:] {
				if err := c.Write("cluster.hcl", demotedConfig(control)); err != nil {
					t.Fatal(err)
				}
				plan, err := c.Clusterctl(ctx, "plan").CombinedOutput()
				if err != nil || !strings.Contains(string(plan), "remove the member") ||
					!strings.Contains(string(plan), "/etc/kubernetes/pki/ca.key") ||
					!strings.Contains(string(plan), "revoke") {
					t.Errorf("the plan does not show the demotion: %v\n%s", err, plan)
				}
				if err := c.Apply(ctx, t.Output()); err != nil {
					t.Fatal(err)
				}
				checkMembers(ctx, t, c, control)
				for _, m := range c.Lab.Machines {
					if strings.Contains(control, strings.TrimPrefix(m.Name, "c")) {
						continue
					}
					found, err := m.Run(ctx, "cd /etc/kubernetes && ls -d pki/ca.key pki/etcd pki/sa.key "+
						"pki/encryption.yaml admin.conf super-admin.conf /var/lib/etcd/member 2>/dev/null || true")
					if err != nil || strings.TrimSpace(found) != "" {
						t.Errorf("%s has %s still, %v", m.Name, found, err)
					}
				}
				again, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
				if err != nil || !strings.Contains(string(again), "keys were on machine.c") {
					t.Errorf("%s: not as declared, or keys are not reported as due: %v\n%s", control, err, again)
				}
			}
			out, err := c.Clusterctl(ctx, "certs", "rotate", "all").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := c.Apply(ctx, t.Output()); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
				_, err := c.Clusterctl(ctx, "status").CombinedOutput()
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
