package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/events"
	"clusterctl/kube/why"
)

func newEvents() *cobra.Command {
	var flags apiFlags
	var namespace, eventType string
	var isAll bool
	var since time.Duration
	c := &cobra.Command{
		Use:   "events [KIND/NAME]",
		Short: "List the events of a namespace, of all namespaces or of one object, the newest last",
		Long: `List events with the rights of the caller, the newest last. Events that repeat are one line with their number.

KIND is one of those of clusterctl why. Events of the objects that the object owns are not included.`,
		Example: `  clusterctl events -A -type Warning -since 10m
  clusterctl events -n shop pod/web-1 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			filter := events.Filter{Type: eventType}
			if eventType != "" && eventType != "Normal" && eventType != "Warning" {
				return fmt.Errorf("-type=%s: it is Normal or Warning", eventType)
			}
			from := namespace
			if len(args) > 0 {
				if isAll {
					return fmt.Errorf("-all-namespaces does not go with %s: an object is in one namespace", args[0])
				}
				ref, err := why.Parse(args[0], namespace)
				if err != nil {
					return err
				}
				filter.Kind, filter.Name = ref.Kind, ref.Name
				if ref.Namespace == "" {
					from = metav1.NamespaceDefault // holds the events of objects without a namespace
				}
			}
			if isAll {
				from = metav1.NamespaceAll
			}
			if since > 0 {
				filter.Since = time.Now().Add(-since)
			}
			config, err := flags.connect(c)
			if err != nil {
				return err
			}
			clients, err := why.New(config)
			if err != nil {
				return err
			}
			report, err := events.List(c.Context(), clients.Kubernetes.CoreV1().Events(from), filter)
			if err != nil {
				return err
			}
			return flags.write(c, report, func(w io.Writer) error { return events.Print(w, report, time.Now()) })
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of the events")
	c.Flags().BoolVarP(&isAll, "all-namespaces", "A", false, "events of all namespaces")
	c.Flags().StringVar(&eventType, "type", "", "only events of this `type`: Normal or Warning")
	c.Flags().DurationVar(&since, "since", 0, "only events of the last `duration`, such as 10m")
	return c
}
