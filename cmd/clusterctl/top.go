package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/kubernetes"
	"clusterctl/kube/top"
)

func newTop() *cobra.Command {
	var flags apiFlags
	var namespace string
	var isAll bool
	c := &cobra.Command{
		Use:   "top [nodes|pods]",
		Short: "Show what nodes or pods use, with plots of the last hour",
		Long: `Show the CPU time and memory that nodes or pods use. What uses most comes first.

The metrics server has the last hour in memory. A plot of a node is in relation to its capacity, a plot of a pod to its
own highest value. At most 100 rows have a plot. All requests have the caller's rights.`,
		Example: `  clusterctl top
  clusterctl top pods -n shop
  clusterctl top pods -A -o json`,
		ValidArgs: []string{"nodes", "pods"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			isPods := len(args) > 0 && args[0] == "pods"
			if !isPods && (isAll || c.Flags().Changed("namespace")) {
				return fmt.Errorf("nodes are in no namespace: for pods, use clusterctl top pods")
			}
			config, err := flags.connect(c)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			api := client.CoreV1().RESTClient()
			var report *top.Report
			switch {
			case !isPods:
				report, err = top.Nodes(c.Context(), api)
			case isAll:
				report, err = top.Pods(c.Context(), api, metav1.NamespaceAll)
			default:
				report, err = top.Pods(c.Context(), api, namespace)
			}
			if err != nil {
				return err
			}
			return flags.write(c, report, func(w io.Writer) error { return top.Print(w, report) })
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of the pods")
	c.Flags().BoolVarP(&isAll, "all-namespaces", "A", false, "pods of all namespaces")
	return c
}
