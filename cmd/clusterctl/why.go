package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"clusterctl/kube/why"
)

// unhealthyCode is the exit code of why for an object that is not as it should be.
const unhealthyCode exitCode = 2

func newWhy() *cobra.Command {
	var flags apiFlags
	var namespace string
	c := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Explain why an object is not as it should be, and what to change; exit with 2 if it is not",
		Long: `Print the chain of causes from an object down to the first one that can be changed, and what to change.

KIND is pod, deployment, replicaset, statefulset, daemonset, job, cronjob, persistentvolumeclaim, persistentvolume,
service, ingress, node, certificatesigningrequest, namespace, horizontalpodautoscaler or poddisruptionbudget, or one of
kubectl's short names for these.

All requests have the caller's rights: those of the kubeconfig, or of the folder's state. The report lists what these
rights hide. Nothing is changed. Exits with 0 if the object is healthy, with 2 if it is not, and with 1 after an error,
such as an object that does not exist.`,
		Example: `  clusterctl why pod/web-1
  clusterctl why -n shop deployment/web
  clusterctl why pvc/data -o json --kubeconfig ~/.kube/config`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := why.Parse(args[0], namespace)
			if err != nil {
				return err
			}
			config, err := flags.connect(c)
			if err != nil {
				return err
			}
			clients, err := why.New(config)
			if err != nil {
				return err
			}
			report, err := why.Explain(c.Context(), clients, ref)
			if err != nil {
				return err
			}
			if err := flags.write(c, report, func(w io.Writer) error {
				return why.Print(w, report, terminalWidth(c.OutOrStdout()))
			}); err != nil {
				return err
			}
			if !report.Healthy {
				return unhealthyCode
			}
			return nil
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of the object")
	c.ValidArgsFunction = func(c *cobra.Command, args []string, toComplete string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		word, _, hasName := strings.Cut(toComplete, "/")
		if !hasName {
			return completeKinds(toComplete), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return flags.objectNames(c, word, namespace, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// completeKinds returns the kinds that begin with a word, each with a slash.
func completeKinds(toComplete string) (list []string) {
	for _, k := range why.Kinds() {
		if strings.HasPrefix(k, strings.ToLower(toComplete)) {
			list = append(list, k+"/")
		}
	}
	return list
}

// maxCompletions is how many names of objects a completion offers.
const maxCompletions = 500

// objectNames returns completions KIND/NAME that begin with a text. It returns none if the cluster does not answer.
func (f *apiFlags) objectNames(c *cobra.Command, word, namespace, toComplete string) (list []string) {
	ref, err := why.Parse(word+"/x", namespace)
	if err != nil {
		return nil
	}
	config, err := f.connect(c)
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	kind := schema.GroupVersionResource{Group: ref.Group, Version: "v1", Resource: ref.Resource}
	objects, err := client.Resource(kind).Namespace(ref.Namespace).List(ctx, metav1.ListOptions{Limit: maxCompletions})
	if err != nil {
		return nil
	}
	for _, o := range objects.Items {
		if text := word + "/" + o.Name; strings.HasPrefix(text, toComplete) {
			list = append(list, text)
		}
	}
	return list
}

// maxWhyWidth limits the lines of a report on a wide terminal, which would be hard to read.
const maxWhyWidth = 100

// terminalWidth returns the width of a report on a terminal. It returns 0 if w is not a terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	return min(width, maxWhyWidth)
}
