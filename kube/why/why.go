// Package why explains the state of an object: it follows the causes from the object down to the first one that a user
// can change. It reads the API with the rights of the caller, and reports what these rights hide.
package why

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"clusterctl/kube/kubernetes"
)

// Ref names an object.
type Ref struct {
	Group     string `json:"apiGroup,omitempty"`
	Resource  string `json:"resource"` // such as pods
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the kind and the name, such as Pod shop/web-1.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Step is one link of the chain: what is wrong with one object, and how it is known.
type Step struct {
	Object Ref    `json:"object"`
	Text   string `json:"text"` // one sentence
	// Evidence is where it was read, such as event FailedScheduling or status.containerStatuses[app].state.
	Evidence string `json:"evidence,omitempty"`
}

// Remedy is what a user can do.
type Remedy struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
	Field   string `json:"field,omitempty"` // the field to change, with its object
}

// Report is the explanation of an object's state.
type Report struct {
	Object   Ref      `json:"object"`
	Verdict  string   `json:"verdict"` // one sentence
	Healthy  bool     `json:"healthy"`
	Chain    []Step   `json:"chain"` // from the object down to the first cause
	Remedies []Remedy `json:"remedies"`
	Unseen   []string `json:"unseen"` // what could not be read, such as events of namespace shop: forbidden
}

// Clients are the clients that make the requests. Their rights are those of the caller.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface // reads custom resources, API services, webhooks and limit ranges
	Logs       LogReader
}

// LogReader returns the last lines of the log of a pod's container. previous selects the log of the container that
// ended before the present one.
type LogReader func(ctx context.Context, pod *corev1.Pod, container string, previous bool) ([]byte, error)

// The limits of a report.
const (
	// deadline limits the time of all requests together.
	deadline = 30 * time.Second
	// requestTimeout limits the time of one request, so that one server behind the API server that does not answer,
	// such as a kubelet, does not hide all else.
	requestTimeout = 8 * time.Second

	maxSteps    = 10
	maxRemedies = 5
	maxUnseen   = 10
	maxText     = 400 // characters
	maxEvidence = 200 // characters

	logLines = 5
	logBytes = 4096
)

// New returns clients of an API server.
func New(config *rest.Config) (Clients, error) {
	config = bounded(config)
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Clients{}, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("create the dynamic client: %w", err)
	}
	logs := func(ctx context.Context, pod *corev1.Pod, container string, previous bool) ([]byte, error) {
		q := typed.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
			SubResource("log").Param("container", container).Param("tailLines", fmt.Sprint(logLines)).
			Param("limitBytes", fmt.Sprint(logBytes))
		if previous {
			q = q.Param("previous", "true")
		}
		return q.Do(ctx).Raw()
	}
	return Clients{Kubernetes: typed, Dynamic: untyped, Logs: logs}, nil
}

// bounded returns a configuration with a limit on the time of each request.
func bounded(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	return config
}

// Explain returns why an object is in its state. An object that does not exist is an error. What the caller may not
// read is listed in the report.
func Explain(ctx context.Context, c Clients, object Ref) (*Report, error) {
	k, err := findKind(object)
	if err != nil {
		return nil, err
	}
	object = k.ref(object.Namespace, object.Name)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	r := newReader(c, time.Now())
	f, err := k.explain(ctx, explainer{r}, object)
	var hidden *hiddenError
	switch {
	case errors.As(err, &hidden):
		return hidden.report(object).clean(), nil
	case err != nil:
		return nil, err
	}
	return newReport(object, f, r.unseen).clean(), nil
}

func newReport(object Ref, f *finding, unseen []string) *Report {
	out := &Report{Object: object, Healthy: f.isHealthy(), Chain: f.steps, Remedies: f.remedies, Unseen: unseen}
	if out.Healthy {
		out.Verdict = fmt.Sprintf("%s is as it should be: it %s.", object, f.state)
	} else {
		out.Verdict = fmt.Sprintf("%s %s because %s.", object, f.state, clause(f.reason))
	}
	return out
}

// hiddenError means that the caller may not read the object itself.
type hiddenError struct{ err error }

func (h *hiddenError) Error() string { return h.err.Error() }

func (h *hiddenError) report(object Ref) *Report {
	command := "kubectl auth can-i get " + object.Resource
	if object.Namespace != "" {
		command += " -n " + object.Namespace
	}
	return &Report{
		Object:   object,
		Verdict:  fmt.Sprintf("The state of %s is unknown because you may not read it.", object),
		Remedies: []Remedy{{Text: "Ask for the right to get " + object.Resource + ".", Command: command}},
		Unseen:   []string{object.String() + ": " + h.err.Error()},
	}
}

// clean makes a report safe to print, and limits its lists and texts.
func (r *Report) clean() *Report {
	if n := len(r.Chain) - maxSteps; n > 0 {
		last := r.Chain[len(r.Chain)-1] // the first cause stays
		r.Chain = append(r.Chain[:maxSteps-1:maxSteps-1], last)
		r.Unseen = append(r.Unseen, fmt.Sprintf("%d more steps of the chain are not shown", n))
	}
	if len(r.Remedies) > maxRemedies {
		r.Remedies = r.Remedies[:maxRemedies]
	}
	if n := len(r.Unseen) - maxUnseen; n > 0 {
		r.Unseen = append(r.Unseen[:maxUnseen-1:maxUnseen-1], fmt.Sprintf("%d more", n+1))
	}
	out := &Report{
		Object: r.Object.clean(), Verdict: cleanText(r.Verdict, maxText), Healthy: r.Healthy,
		Chain: []Step{}, Remedies: []Remedy{}, Unseen: []string{},
	}
	for _, s := range r.Chain {
		out.Chain = append(out.Chain, Step{s.Object.clean(), cleanText(s.Text, maxText),
			cleanText(s.Evidence, maxEvidence)})
	}
	for _, m := range r.Remedies {
		command := cleanText(m.Command, maxText)
		if strings.HasSuffix(command, "…") { // a part of a command is of no use
			command = ""
		}
		out.Remedies = append(out.Remedies, Remedy{cleanText(m.Text, maxText), command,
			cleanText(m.Field, maxEvidence)})
	}
	for _, u := range r.Unseen {
		out.Unseen = append(out.Unseen, cleanText(u, maxEvidence))
	}
	return out
}

func (r Ref) clean() Ref {
	return Ref{cleanText(r.Group, maxEvidence), cleanText(r.Resource, maxEvidence), cleanText(r.Kind, maxEvidence),
		cleanText(r.Namespace, maxEvidence), cleanText(r.Name, maxEvidence+maxEvidence/2)}
}
