// Package matrix sends real packets in every way into and through a cluster of real machines, and compares the outcomes
// with the documentation: rows_test.go is the table. The table is tested in each mode of the proxy, which is changed on
// the running cluster.
package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/walk"
	"clusterctl/tests/programs/webimage"
)

var proxyModes = flag.String("modes", "nftables", "modes of the proxy in which the table is walked, one after the "+
	"other")

// world is the cluster, with its addresses.
type world struct {
	*cluster.Cluster
	place
	services         map[string]corev1.Service
	pods             map[string]corev1.Pod
	gatewayAddresses []string // addresses of the Gateway
	nameServer       string   // the cluster's name server
}

// Proves S22, S27, S28, S29, S31, S32.
func TestPacketsGoEveryWayAsDocumented(t *testing.T) {
	list := strings.Split(*proxyModes, ",")
	startCluster(t, oneNetwork, list[0]).testModes(t, list)
}

// testModes tests the table in each mode. The cluster begins in the first mode.
func (w *world) testModes(t *testing.T, list []string) {
	for i, mode := range list {
		if i > 0 {
			if err := w.Write("cluster.hcl", w.configuration(mode)); err != nil {
				t.Fatal(err)
			}
			if err := w.Apply(t.Context(), os.Stderr); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(mode, func(t *testing.T) { w.testTable(t, mode) })
	}
}

// In this network, pods' packets between machines are encapsulated, and load balancer addresses are announced by BGP.
// Proves S22, S29.
func TestRoutedMachinesAnnounceAddressesToTheRouter(t *testing.T) {
	list := strings.Split(*proxyModes, ",")
	w := startCluster(t, routedNetworks, list[0])
	wrapped, err := w.Lab.Machine("a").
		Run(t.Context(), "ip -o -4 route show dev kube-vxlan; ip -o -6 route show dev kube-vxlan")
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"10.244.", "fd00:244:"} {
		if !strings.Contains(wrapped, network) {
			t.Errorf("no packets to %s are wrapped:\n%s", network, wrapped)
		}
	}
	w.testModes(t, list)
}

// question is a row with one protocol and family.
type question struct {
	row
	walk.Ask
}

// questions returns the questions of the table.
func (w *world) questions() (list []question) {
	for _, r := range expandRows(rows) {
		if strings.HasSuffix(r.to, "Gateway") && (r.to == "OwnGateway") != w.hasGateways {
			continue // Gateways use the machines' ports, or have their own addresses
		}
		protocols := r.by
		if protocols == "" {
			protocols = addressKinds[r.to].protocols
		}
		for _, protocol := range strings.Fields(protocols) {
			for _, family := range []int{4, 6} {
				a := walk.Ask{Protocol: protocol, Family: family, Wait: 5 * time.Second}
				if r.want == walk.Dropped {
					a.Wait = 700 * time.Millisecond
				}
				if r.want == walk.Reached && len(strings.Fields(r.servers())) > 1 {
					a.Tries = 24 // the chance never to choose one of two is one in millions
				}
				if r.from == "node" {
					a.Names = w.nameServer
				}
				a.To, a.Host = w.targetOf(r, protocol, family)
				a.ID = fmt.Sprintf("from %s to %s %s (%s) by %s over IPv%d", r.from, r.to, r.service, a.To, protocol,
					family)
				list = append(list, question{r, a})
			}
		}
	}
	return list
}

// servers returns the servers that may answer a row.
func (r row) servers() string {
	if r.answers != "" {
		return r.answers
	}
	set, place, named := strings.Cut(r.service, "-")
	if !named {
		return r.service // Pod and HostPort have servers' names
	}
	prefix := ""
	if slices.Contains([]string{"guarded", "narrow", "blocked"}, set) {
		prefix = set + "-"
	}
	if place == "both" || set == "ranged" {
		return "here there"
	}
	return prefix + place
}

// firstPorts are the first source ports of clients in each mode, which differ between modes. The kernel remembers a UDP
// flow for some time after its last packet, and keeps sending the flow to its endpoint after a change of the mode. A
// client with the port of a former client would reach the former client's endpoint.
var firstPorts = map[string]int{
	"nftables":  33000,
	"iptables":  33000 + walk.PortsOfAsk,
	"userspace": 33000 + 2*walk.PortsOfAsk,
}

// testTable repeats the questions until all answers are correct, because endpoints, names and addresses take a moment
// to appear. Then it asks all once more, and all answers must be correct.
func (w *world) testTable(t *testing.T, mode string) {
	start := time.Now()
	all := w.questions()
	for i := range all {
		all[i].Ports = firstPorts[mode]
	}
	left := all
	for end := time.Now().Add(time.Minute); len(left) > 0 && time.Now().Before(end); {
		answers := w.sendQuestions(t, left)
		left = slices.DeleteFunc(slices.Clone(left),
			func(q question) bool { return q.mismatch(mode, answers[q.ID], w.clientAddresses(q)) == "" })
	}
	t.Logf("%d rows come to rest after %s", len(all), time.Since(start).Round(time.Second))
	// If the best machine for an address does not have it, it takes the address over after it has been the best for a
	// while. Questions during this time may fail, so the test repeats them if the holders have changed.
	var answers map[string]walk.Answer
	for end := time.Now().Add(2 * time.Minute); ; {
		before := w.addressHolders(t)
		answers = w.sendQuestions(t, all)
		after := w.addressHolders(t)
		if before == after {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("load balancers' addresses go from machine to machine without end; the leases' holders "+
				"were\n%sand are\n%s", before, after)
		}
		t.Logf("load balancers' addresses have moved meanwhile, all is asked once more; the leases' holders "+
			"were\n%sand are\n%s", before, after)
	}
	failures := 0
	for _, q := range all {
		problem := q.mismatch(mode, answers[q.ID], w.clientAddresses(q))
		if problem == "" {
			continue
		}
		t.Errorf("%s: %s: %s", q.ID, problem, q.reason)
		if failures++; failures <= 3 && q.Protocol != "HTTP" && q.Protocol != "HTTPS" {
			t.Logf("clusterctl debug network:\n%s", w.debugPath(t.Context(), q))
		}
	}
	t.Logf("%d rows in %s", len(all), time.Since(start).Round(time.Second))
}

// addressHolders returns the machines that hold load balancer addresses, by lease.
func (w *world) addressHolders(t *testing.T) string {
	t.Helper()
	text, err := cluster.Output(w.KubectlCommand(t.Context(), "get", "leases", "-n", metav1.NamespaceSystem,
		"-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.holderIdentity}{"\n"}{end}`))
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for line := range strings.Lines(text) {
		if name, _, _ := strings.Cut(line, "="); slices.Contains(loadbalancer.Leases(), name) {
			list.WriteString(line)
		}
	}
	return list.String()
}

// mismatch returns how an answer differs from the row, or "".
func (q question) mismatch(mode string, a walk.Answer, own []string) string {
	relayed := mode == "userspace" && addressKinds[q.to].isProxied && q.Protocol != "SCTP"
	want := q.want
	if relayed && q.row.relayed != "" {
		want = q.row.relayed
	}
	wants := strings.Split(want, " or ")
	if q.from == "node" && (want == walk.Refused || want == walk.Dropped) {
		wants = append(wants, walk.Forbidden)
	}
	if relayed && q.Protocol == "TCP" && slices.Contains(wants, walk.Dropped) {
		wants = append(wants, walk.ClosedEarly) // the proxy accepts a connection before it finds that the pod does not
	}
	switch {
	case a.ID == "":
		return "no answer"
	case !slices.Contains(wants, a.Outcome):
		return fmt.Sprintf("%s (%s), want %s", a.Outcome, a.Detail, want)
	case a.Outcome != walk.Reached:
		return ""
	}
	servers, any := strings.CutPrefix(q.servers(), "one of ")
	if some := strings.Fields(servers); any && (len(a.Servers) != 1 || !slices.Contains(some, a.Servers[0])) ||
		!any && !slices.Equal(a.Servers, some) {
		return fmt.Sprintf("answered by %s, want %s", a.Servers, q.servers())
	}
	if want == q.want { // a client that connects contrary to the row keeps no address
		kept := q.keepsClient &&
			// the proxy of the client's own machine uses its address
			(!relayed || q.from == "node" && q.to != "FarNodePort")
		for _, seen := range a.Clients {
			if slices.Contains(own, seen) != kept {
				return fmt.Sprintf("seen as %s, its own address is kept: want %t", seen, kept)
			}
		}
	}
	return ""
}

// clientAddresses returns the addresses of the client.
func (w *world) clientAddresses(q question) (list []string) {
	switch q.from {
	case "outside":
		return w.outside
	case "node":
		list = []string{"10.99.0.21", "fd00:99::21"}
		for _, ip := range w.pods["pod"].Status.PodIPs {
			list = append(list, gatewayOf(ip.IP)) // the machine's address in the network of its own pods
		}
		return list
	}
	for _, ip := range w.pods[podOf(q.from)].Status.PodIPs {
		list = append(list, ip.IP)
	}
	return list
}

// podOf returns the pod in which a client runs.
func podOf(from string) string {
	if from == "endpoint" {
		return "here"
	}
	return from
}

// sendQuestions sends the questions of all clients, in parallel.
func (w *world) sendQuestions(t *testing.T, list []question) map[string]walk.Answer {
	t.Helper()
	inputs := map[string]*bytes.Buffer{}
	for _, q := range list {
		if inputs[q.from] == nil {
			inputs[q.from] = &bytes.Buffer{}
		}
		if err := json.NewEncoder(inputs[q.from]).Encode(q.Ask); err != nil {
			t.Fatal(err)
		}
	}
	type output struct {
		text string
		err  error
	}
	outputs := make(chan output)
	for from, in := range inputs {
		cmd := w.clientCommand(t.Context(), from)
		cmd.Stdin = in
		go func() {
			text, err := cluster.Output(cmd)
			outputs <- output{text, err}
		}()
	}
	answers := map[string]walk.Answer{}
	for range inputs {
		out := <-outputs
		if out.err != nil {
			t.Error(out.err)
		}
		for line := range strings.Lines(out.text) {
			var a walk.Answer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			answers[a.ID] = a
		}
	}
	return answers
}

func (w *world) clientCommand(ctx context.Context, from string) *exec.Cmd {
	switch from {
	case "node":
		return w.Lab.Machine("a").SSH(ctx, "root", "/usr/local/bin/test-web -walk")
	case "outside":
		return w.Lab.Command(ctx, filepath.Join(w.Bundle, "test-web"), "-walk")
	}
	return w.KubectlCommand(ctx, "exec", "-i", "-n", "matrix", podOf(from), "--", "web", "-walk")
}

// debugPath runs clusterctl to find where the packets of a question end.
func (w *world) debugPath(ctx context.Context, q question) string {
	from := map[string]string{"node": "node/node-a", "outside": "outside"}[q.from]
	if from == "" {
		from = "pod/matrix/" + podOf(q.from)
	}
	to := q.To
	if host, port, err := net.SplitHostPort(to); err == nil && addressKinds[q.to].isName {
		to = "service/matrix/" + strings.TrimSuffix(host, serviceDomain) + ":" + port
	}
	args := []string{"debug", "network", from, to}
	if q.Protocol == "UDP" {
		args = append(args, "--protocol", "udp")
	}
	out, _ := w.Clusterctl(ctx, args...).CombinedOutput() // it fails if packets are lost
	return string(out)
}

func startCluster(t *testing.T, p place, mode string) *world {
	t.Helper()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	web, err := os.ReadFile(filepath.Join(root, "tests/suites/demo/web.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), cluster.Options{Name: fmt.Sprintf("matrix-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=" + p.addressB},
		Files:    map[string]string{"cluster.hcl": p.configuration(mode), "web.hcl": string(web)}, HasPrograms: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, place: p}
	if p.announce != nil {
		p.announce(t, w)
	}
	w.createObjects(t)
	return w
}
