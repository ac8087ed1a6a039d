package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"clusterctl/kube/events"
	"clusterctl/kube/tree"
	"clusterctl/kube/why"
)

func newEvents() *cobra.Command {
	var flags apiFlags
	var namespace, eventType string
	var isAll, isOwned, follows bool
	var since time.Duration
	c := &cobra.Command{
		Use:   "events [KIND/NAME]",
		Short: "List the events of a namespace, of all namespaces or of one object, the newest last",
		Long: `List events with the rights of the caller, the newest last. Events that repeat are one line with their number.

KIND is one of those of clusterctl why; with -owned it is any kind of the cluster. With -follow, new events follow until
the command is interrupted, one a line; with -o json one object a line.`,
		Example: `  clusterctl events -A -type Warning -since 10m
  clusterctl events -f -n shop -owned deployment/web
  clusterctl events -n shop pod/web-1 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			filter := events.Filter{Type: eventType}
			if eventType != "" && eventType != "Normal" && eventType != "Warning" {
				return fmt.Errorf("-type=%s: it is Normal or Warning", eventType)
			}
			if isOwned && len(args) == 0 {
				return fmt.Errorf("-owned needs an object, such as deployment/web")
			}
			if isAll && len(args) > 0 {
				return fmt.Errorf("-all-namespaces does not go with %s: an object is in one namespace", args[0])
			}
			if follows && flags.output == outputYAML {
				return fmt.Errorf("-follow does not go with -o yaml: use -o json, which is one object a line")
			}
			config, err := flags.connect(c)
			if err != nil {
				return err
			}
			from := namespace
			if isAll {
				from = metav1.NamespaceAll
			} else if len(args) > 0 {
				from, filter.Objects, err = selectObject(c.Context(), config, args[0], namespace, isOwned)
				if err != nil {
					return err
				}
			}
			if since > 0 {
				filter.Since = time.Now().Add(-since)
			}
			clients, err := why.New(config)
			if err != nil {
				return err
			}
			source := clients.Kubernetes.CoreV1().Events(from)
			if follows {
				return followEvents(c, source, filter, flags.output == outputJSON)
			}
			report, err := events.List(c.Context(), source, filter)
			if err != nil {
				return err
			}
			return flags.write(c, report, func(w io.Writer) error { return events.Print(w, report, time.Now()) })
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of the events")
	c.Flags().BoolVarP(&isAll, "all-namespaces", "A", false, "events of all namespaces")
	c.Flags().BoolVar(&isOwned, "owned", false, "events of what the object owns, too, directly or through others")
	c.Flags().BoolVarP(&follows, "follow", "f", false, "print new events until the command is interrupted")
	c.Flags().StringVar(&eventType, "type", "", "only events of this `type`: Normal or Warning")
	c.Flags().DurationVar(&since, "since", 0, "only events of the last `duration`, such as 10m")
	return c
}

// followEvents prints events as they occur.
func followEvents(c *cobra.Command, from events.Watcher, filter events.Filter, isJSON bool) error {
	out := c.OutOrStdout()
	emit := func(g events.Group) error { return events.PrintLine(out, g) }
	if isJSON {
		lines := json.NewEncoder(out)
		emit = func(g events.Group) error { return lines.Encode(g) }
	}
	return events.Follow(c.Context(), from, filter, emit, func(err error) {
		fmt.Fprintf(c.ErrOrStderr(), "The connection was lost and is made again: %v\n", err)
	})
}

// objectFilter reports for each object whether its events are selected.
type objectFilter func(context.Context, []corev1.ObjectReference) ([]bool, error)

// selectObject returns a filter for the events of an object KIND/NAME, and the namespace that holds these events.
func selectObject(
	ctx context.Context,
	config *rest.Config,
	object, namespace string,
	isOwned bool,
) (from string, filter objectFilter, err error) {
	if !isOwned {
		ref, err := why.Parse(object, namespace)
		if err != nil {
			return "", nil, err
		}
		if ref.Namespace == "" {
			return metav1.NamespaceDefault, events.OfObject(ref.Kind, ref.Name), nil
		}
		return ref.Namespace, events.OfObject(ref.Kind, ref.Name), nil
	}
	word, name, err := splitObject(object)
	if err != nil {
		return "", nil, err
	}
	clients, err := newTreeClients(config)
	if err != nil {
		return "", nil, err
	}
	members, err := tree.NewMembers(ctx, func(ctx context.Context) (*tree.Report, error) {
		return tree.Read(ctx, clients, word, namespace, name)
	})
	if err != nil {
		return "", nil, err
	}
	// What an object without a namespace owns can be in any: NamespaceAll is empty, too.
	return members.Root.Namespace, func(ctx context.Context, list []corev1.ObjectReference) ([]bool, error) {
		objects := make([]tree.Object, len(list))
		for i, o := range list {
			objects[i] = tree.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
		}
		return members.Has(ctx, objects)
	}, nil
}
