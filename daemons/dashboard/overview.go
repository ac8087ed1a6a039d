package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/dashboard/table"
)

// The limits of an overview.
const (
	maxProblems = 200
	// overviewTime is how long an overview waits for the tables that it reads. It has no more than was read by then.
	overviewTime = 3 * time.Second
)

type severity string

const (
	severityError   severity = "error"
	severityWarning severity = "warning"
)

// objectRef names an object.
type objectRef struct {
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// problem is an object that needs attention.
type problem struct {
	Severity severity  `json:"severity"`
	Object   objectRef `json:"object"`
	Message  string    `json:"message"`
}

type readyCount struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

type podCount struct {
	Total   int `json:"total"`
	Running int `json:"running"`
	Pending int `json:"pending"`
	Failed  int `json:"failed"`
}

type availableCount struct {
	Total     int `json:"total"`
	Available int `json:"available"`
}

type boundCount struct {
	Total int `json:"total"`
	Bound int `json:"bound"`
}

// overview is the answer of /api/overview.
type overview struct {
	Problems      []problem      `json:"problems"` // errors first
	ProblemsTotal int            `json:"problemsTotal"`
	Unseen        []string       `json:"unseen"` // what could not be read
	Nodes         readyCount     `json:"nodes"`
	Pods          podCount       `json:"pods"`
	Workloads     availableCount `json:"workloads"`
	Volumes       boundCount     `json:"volumes"` // claims
	Sources       readyCount     `json:"sources"`
}

// overviewTable is a table that the overview reads, with the function that counts an object and returns its problem.
type overviewTable struct {
	kind  table.Kind
	name  string
	count func(o *overview, object table.Object) (severity, string)
	// isOptional means that the kind need not exist.
	isOptional bool
}

// overviewTables returns all tables of the overview. The columns are those of kubectl.
func overviewTables() []overviewTable {
	return []overviewTable{
		{table.Kind{Version: "v1", Resource: "nodes"}, "Node", countNode, false},
		{table.Kind{Version: "v1", Resource: "pods"}, "Pod", countPod, false},
		{table.Kind{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", countReplicas, false},
		{table.Kind{Group: "apps", Version: "v1", Resource: "statefulsets"}, "StatefulSet", countReplicas, false},
		{table.Kind{Group: "apps", Version: "v1", Resource: "daemonsets"}, "DaemonSet", countDaemonSet, false},
		{table.Kind{Group: "batch", Version: "v1", Resource: "jobs"}, "Job", countJob, false},
		{table.Kind{Version: "v1", Resource: "persistentvolumeclaims"}, "PersistentVolumeClaim", countClaim, false},
		{table.Kind{Group: gitsource.Group, Version: gitsource.Version, Resource: gitsource.Resource}, "GitSource",
			countSource, true},
		{table.Kind{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}, "APIService",
			countAPIService, true},
	}
}

// readOverview answers /api/overview.
func readOverview(ctx context.Context, s *session) (*overview, error) {
	wait, cancel := context.WithTimeout(ctx, overviewTime)
	defer cancel()
	o := &overview{Problems: []problem{}, Unseen: []string{}}
	tables := overviewTables()
	feeds, errs := make([]*table.Feed, len(tables)), make([]error, len(tables))
	var waiting sync.WaitGroup
	for i, t := range tables {
		feed, release, err := s.tables.Open(t.kind)
		if err != nil {
			errs[i] = err
			continue
		}
		defer release()
		feeds[i] = feed
		waiting.Go(func() { errs[i] = feed.Await(wait) })
	}
	waiting.Wait()
	for i, t := range tables {
		if err := errs[i]; err != nil && !(t.isOptional && apierrors.IsNotFound(err)) {
			o.Unseen = append(o.Unseen, t.kind.Resource+": "+unseenReason(err))
		}
		if feeds[i] == nil {
			continue
		}
		feeds[i].Each(func(object table.Object) {
			if severity, message := t.count(o, object); message != "" {
				o.add(problem{severity, objectRef{t.kind.Group, t.kind.Resource, t.name, object.Namespace(),
					object.Name()}, message})
			}
		})
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o.cut()
	return o, nil
}

// add adds a problem. Now and then the list is cut, so that it stays short.
func (o *overview) add(p problem) {
	o.ProblemsTotal++
	if o.Problems = append(o.Problems, p); len(o.Problems) >= 4*maxProblems {
		o.cut()
	}
}

// cut puts errors first, and enforces the limit.
func (o *overview) cut() {
	slices.SortFunc(o.Problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Object.Kind, b.Object.Kind),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	o.Problems = o.Problems[:min(len(o.Problems), maxProblems)]
}

// unseenReason returns a short reason why something could not be read.
func unseenReason(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "not served"
	case errors.Is(err, context.DeadlineExceeded):
		return "still loading"
	}
	return statusOf(err).Message
}

func countNode(o *overview, n table.Object) (severity, string) {
	o.Nodes.Total++
	status := strings.Split(n.Cell("Status"), ",")
	switch {
	case status[0] != "Ready":
		return severityError, "The node is " + cmp.Or(status[0], "Unknown") + "."
	case slices.Contains(status, "SchedulingDisabled"):
		o.Nodes.Ready++
		return severityWarning, "The node is cordoned."
	}
	o.Nodes.Ready++
	return "", ""
}

// countPod classifies a pod by kubectl's status, which has the reason of a waiting container in place of the phase.
func countPod(o *overview, p table.Object) (severity, string) {
	o.Pods.Total++
	status := p.Cell("Status")
	switch reason, isInit := strings.CutPrefix(status, "Init:"); {
	case status == "Completed" || status == "Succeeded":
		return "", ""
	case status == "Running" || status == "Terminating" || status == "NotReady":
		o.Pods.Running++
		if ready, all, ok := strings.Cut(p.Cell("Ready"), "/"); ok && ready != all && status != "Terminating" {
			return severityWarning, fmt.Sprintf("%s of %s containers are ready.", ready, all)
		}
		return "", ""
	case status == "Pending" || status == "ContainerCreating" || status == "PodInitializing" ||
		status == "SchedulingGated" || isInit && strings.Contains(reason, "/"):
		o.Pods.Pending++
		return severityWarning, "The pod does not run yet: " + status + "."
	}
	o.Pods.Failed++
	return severityError, "The pod does not run: " + cmp.Or(status, "Unknown") + "."
}

// countReplicas counts a workload whose column Ready has the ready and the wanted pods.
func countReplicas(o *overview, w table.Object) (severity, string) {
	ready, all, _ := strings.Cut(w.Cell("Ready"), "/")
	return o.countWorkload(ready, all)
}

func countDaemonSet(o *overview, w table.Object) (severity, string) {
	return o.countWorkload(w.Cell("Ready"), w.Cell("Desired"))
}

func (o *overview) countWorkload(ready, all string) (severity, string) {
	o.Workloads.Total++
	actual, _ := strconv.Atoi(ready) // not a number means 0
	wants, _ := strconv.Atoi(all)
	switch {
	case actual >= wants:
		o.Workloads.Available++
		return "", ""
	case actual == 0:
		return severityError, fmt.Sprintf("None of %d pods is ready.", wants)
	}
	return severityWarning, fmt.Sprintf("%d of %d pods are ready.", actual, wants)
}

func countJob(_ *overview, j table.Object) (severity, string) {
	if status := j.Cell("Status"); strings.HasPrefix(status, "Failed") {
		return severityError, "The job failed: " + j.Cell("Completions") + " completions."
	}
	return "", ""
}

func countClaim(o *overview, c table.Object) (severity, string) {
	o.Volumes.Total++
	switch status := c.Cell("Status"); status {
	case "Bound":
		o.Volumes.Bound++
		return "", ""
	case "Lost":
		return severityError, "The volume of the claim is lost."
	default:
		return severityWarning, "The claim has no volume: " + cmp.Or(status, "Pending") + "."
	}
}

func countSource(o *overview, s table.Object) (severity, string) {
	o.Sources.Total++
	switch ready := s.Cell("Ready"); {
	case ready == "True":
		o.Sources.Ready++
		return "", ""
	case s.Cell("Suspended") == "true":
		return severityWarning, "The source is suspended."
	case ready == "False":
		return severityError, "The source is not applied: " + cmp.Or(s.Cell("Status"), "unknown") + "."
	default:
		return severityWarning, "The source is not applied yet."
	}
}

func countAPIService(_ *overview, a table.Object) (severity, string) {
	if available := a.Cell("Available"); !strings.HasPrefix(available, "True") {
		return severityError, "The API of " + a.Cell("Service") + " does not answer: " + cmp.Or(available, "Unknown") +
			"."
	}
	return "", ""
}
