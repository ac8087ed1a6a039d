package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/daemons/client"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
	"clusterctl/tests/suites/chaos/check"
	"clusterctl/tests/suites/chaos/fault"
)

func stamp() string { return time.Now().UTC().Format("15:04:05.000") }

// newClient returns a client for some of the API servers, with the client configuration of the daemons.
func newClient(c *cluster.Cluster, servers ...string) (kubernetes.Interface, error) {
	var list []string
	for _, s := range servers {
		list = append(list, machineAddresses[s]+":6443")
	}
	config, err := client.Config(client.Options{Kubeconfig: c.Kubeconfig(), APIServers: list, UserAgent: "chaos"})
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// runOnCluster does a run in the lab's network, on a running cluster.
func runOnCluster(ctx context.Context, name string, o options) error {
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	faults := o.faults
	if faults == nil {
		faults = fault.Plan(o.seed, machineNames, int(o.duration/(5*time.Second))+1)
		fmt.Printf("chaos: seed %d gives", o.seed)
		for i, f := range faults {
			if i == 12 {
				fmt.Printf(" … and on")
				break
			}
			fmt.Printf(" %s;", f)
		}
		fmt.Println()
	}
	all, err := newClient(c, machineNames.Control...)
	if err != nil {
		return err
	}
	r := &faultRunner{cluster: c, api: all, lastFault: map[string]time.Time{}}
	if err := r.awaitRecovery(ctx, 3*time.Minute); err != nil {
		return fmt.Errorf("the cluster is not well before anything was done to it: %w", err)
	}
	observer := &Observer{api: all, lab: c.Lab, healthyMachines: r.healthyMachines}
	clients, err := startClients(ctx, func(servers ...int) (kubernetes.Interface, error) {
		var names []string
		for _, i := range servers {
			names = append(names, machineNames.Control[i])
		}
		return newClient(c, names...)
	})
	if err != nil {
		return err
	}
	defer clients.stop()
	clients.working.Go(func() { observer.Run(clients.work) })
	if err := startTraffic(ctx, c); err != nil {
		return err
	}
	start := time.Now()
	r.runFaults(ctx, faults, o)
	span := time.Since(start)

	// Collect the results.
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	failures, made, err := endTraffic(final, c)
	if err != nil {
		r.addFinding("the clients of the workload could not be asked: " + err.Error())
	}
	relists, found := clients.finish(final, all)
	r.findings = append(append(r.findings, observer.findings...), found...)
	r.findings = append(r.findings, check.Traffic(failures, r.windows)...)
	requests := 0
	for client, n := range made {
		requests += n
		machine, _, _ := strings.Cut(client, "'")
		r.findings = append(r.findings,
			check.MissedRequests(client, n, max(0, span-r.severed[machine]), requestInterval)...)
	}
	fmt.Printf("chaos: %d requests, of which %d failed while their machines were broken or otherwise; %d looks\n",
		requests, len(failures), observer.snapshots)
	return reportVerdict(o.seed, r.faultsDone, clients.history, relists, r.findings)
}

// faultRunner causes faults, one after the other, and records the failures that they excuse.
type faultRunner struct {
	cluster    *cluster.Cluster
	api        kubernetes.Interface
	faultsDone int
	findings   []string
	windows    []check.Window
	severed    map[string]time.Duration // how long machines were severed

	mu        sync.Mutex
	lastFault map[string]time.Time // when the last fault that stops a machine's daemons ended; zero while it lasts
}

func (r *faultRunner) addFinding(text string) {
	fmt.Printf("%s FOUND %s\n", stamp(), text)
	r.findings = append(r.findings, text)
}

// healthyMachines returns the machines without a fault for the settling time.
func (r *faultRunner) healthyMachines() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]bool{}
	for m := range machineAddresses {
		last, touched := r.lastFault[m]
		out[m] = !touched || !last.IsZero() && time.Since(last) > settlingTime
	}
	return out
}

func (r *faultRunner) recordFault(f fault.Fault, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.DisconnectsMachines() {
		for _, m := range f.Machines {
			r.lastFault[m] = at
		}
	}
}

// recoveryTimeout is how long the cluster may take to recover after a fault.
const recoveryTimeout = 3 * time.Minute

// proxyDelay is how long a proxy may take to receive endpoints that the API has.
const proxyDelay = time.Second

func (r *faultRunner) runFaults(ctx context.Context, faults []fault.Fault, o options) {
	r.severed = map[string]time.Duration{}
	start := time.Now()
	for _, f := range faults {
		if ctx.Err() != nil || o.faults == nil && time.Since(start) > o.duration {
			return
		}
		fmt.Printf("%s %s\n", stamp(), f)
		from := time.Now()
		before := r.containers()
		r.recordFault(f, time.Time{})
		if err := f.Run(ctx, r.cluster.Lab, newRepair(r.cluster)); err != nil {
			r.addFinding(err.Error())
		}
		over := time.Now()
		r.faultsDone++
		err := r.awaitRecovery(ctx, recoveryTimeout)
		if err != nil && ctx.Err() == nil {
			r.addFinding(fmt.Sprintf("%s after %s the cluster is not well: %v", recoveryTimeout, f, err))
		}
		r.recordFault(f, time.Now())
		if f.Kind != fault.Power && f.Kind != fault.Lose {
			after := r.containers()
			for id, where := range before {
				if after[id] == "" {
					r.addFinding(fmt.Sprintf("after %s container %s %s no longer runs", f, id, where))
				}
			}
		}
		fmt.Printf("%s   over; well again after %.1f s\n", stamp(), time.Since(over).Seconds())
		for _, m := range f.Machines {
			if f.DisconnectsMachines() {
				r.severed[m] += time.Since(from)
			}
			if slices.Contains(machineNames.Nodes, m) && (f.DisconnectsMachines() || f.Kind == fault.Slow) {
				r.windows = append(r.windows,
					check.Window{From: from, To: time.Now().Add(proxyDelay), Reason: f.String()})
			}
		}
	}
}

// containers returns the running containers of the workload by id, with a description of the place.
func (r *faultRunner) containers() map[string]string {
	found := map[string]string{}
	for _, name := range machineNames.Nodes {
		for uid, ids := range runningContainers(r.cluster.Lab.Machine(name)) {
			for _, id := range ids {
				found[id] = fmt.Sprintf("of pod %s on %s", uid, name)
			}
		}
	}
	return found
}

func isReady(p corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// runsContainers reports whether the containers in a pod's status are those that its machine runs.
func runsContainers(lab *machines.Lab, p corev1.Pod) bool {
	m := lab.Machine(p.Spec.NodeName)
	if m == nil {
		return false
	}
	there := runningContainers(m)[string(p.UID)]
	for _, s := range p.Status.ContainerStatuses {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if len(id) < 12 || !slices.Contains(there, id[:12]) {
			return false
		}
	}
	return len(p.Status.ContainerStatuses) > 0
}

// checkForwarding checks that a machine's proxy has its rules, with the health check that load balancers use.
func checkForwarding(ctx context.Context, machine string) error {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+machineAddresses[machine]+":10256/healthz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("the proxy of %s: %w", machine, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the proxy of %s has no rules yet: %s", machine, answer.Status)
	}
	return nil
}

// awaitRecovery waits until every API server answers, every node is ready and forwards, and the whole workload is
// ready.
func (r *faultRunner) awaitRecovery(ctx context.Context, limit time.Duration) error {
	var servers []kubernetes.Interface
	for _, s := range machineNames.Control {
		own, err := newClient(r.cluster, s)
		if err != nil {
			return err
		}
		servers = append(servers, own)
	}
	return cluster.Eventually(ctx, limit, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		for i, own := range servers {
			if _, err := own.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
				return fmt.Errorf("the API server of %s: %w", machineNames.Control[i], err)
			}
		}
		nodes, err := servers[0].CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(nodes.Items) < len(machineNames.Nodes) {
			return fmt.Errorf("there are %d nodes", len(nodes.Items))
		}
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return fmt.Errorf("node %s is not ready: %s: %s", n.Name, c.Reason, c.Message)
				}
			}
			if _, err := os.Stat(r.cluster.Lab.Machine(n.Name).Root()); err != nil {
				return err
			}
		}
		// A machine that has just returned does not forward to services until its proxy has received them, which needs
		// a majority of the control plane.
		for _, name := range machineNames.Nodes {
			if err := checkForwarding(ctx, name); err != nil {
				return err
			}
		}
		pods, err := servers[0].CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app in (web,probe)"})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods.Items {
			switch isRunning := isReady(p) && runsContainers(r.cluster.Lab, p); {
			// The API may not yet show that the machine was off, so the machine's containers are checked too.
			case p.Labels["app"] == "web" && isRunning:
				ready++
			case p.Labels["app"] == "probe" && !isRunning:
				return fmt.Errorf("the workload's client on %s does not run", p.Spec.NodeName)
			}
		}
		if ready < 3 {
			return fmt.Errorf("%d of 3 pods of the workload are ready", ready)
		}
		return nil
	})
}
