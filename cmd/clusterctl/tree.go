package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/gitops"
	"clusterctl/kube/discovery"
	"clusterctl/kube/tree"
)

func newTree() *cobra.Command {
	var flags apiFlags
	var namespace string
	c := &cobra.Command{
		Use:   "tree KIND/NAME",
		Short: "Show what an object owns, directly or through others, and the state of each",
		Long: `Show an object with those that it owns, directly or through others, such as the ReplicaSets and pods of a Deployment.

KIND is any kind of the cluster, as for kubectl: deploy, deployments.apps, and those of custom resources. All requests
have the caller's rights. The tree lists what these rights hide, and has at most 500 objects.`,
		Example: `  clusterctl tree deployment/web
  clusterctl tree -n shop cronjob/report -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			word, name, err := splitObject(args[0])
			if err != nil {
				return err
			}
			config, err := flags.connect(c)
			if err != nil {
				return err
			}
			clients, err := newTreeClients(config)
			if err != nil {
				return err
			}
			report, err := tree.Read(c.Context(), clients, word, namespace, name)
			if err != nil {
				return err
			}
			return flags.write(c, report, func(w io.Writer) error { return tree.Print(w, report) })
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of the object")
	return c
}

// splitObject returns the kind and the name of KIND/NAME.
func splitObject(text string) (word, name string, err error) {
	word, name, ok := strings.Cut(text, "/")
	if !ok || word == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q does not name an object: use KIND/NAME, such as deployment/web", text)
	}
	return word, name, nil
}

func newTreeClients(config *rest.Config) (tree.Clients, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // of deprecated kinds, all of which are listed
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return tree.Clients{}, fmt.Errorf("create the HTTP client: %w", err)
	}
	found, err := discovery.New(config, client)
	if err != nil {
		return tree.Clients{}, err
	}
	headers, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err != nil {
		return tree.Clients{}, fmt.Errorf("create the metadata client: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return tree.Clients{}, fmt.Errorf("create the dynamic client: %w", err)
	}
	return tree.Clients{Discovery: found, Metadata: headers, Dynamic: objects,
		Health: func(o *unstructured.Unstructured) (string, string) {
			state, reason := gitops.Health(o)
			return string(state), reason
		}}, nil
}
