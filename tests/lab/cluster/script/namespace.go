package script

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/kube/kubernetes"
	"clusterctl/tests/lab/cluster"
)

// client returns a client of the cluster's administrator, and a function that closes its connections. The scripts'
// namespaces need it: a start of kubectl takes more processor time than a hundred requests.
func (w world) client() (kubernetes.Interface, func(), error) {
	config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig())
	if err != nil {
		return nil, nil, err
	}
	config.Dial = w.Lab.Dial
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	api, err := kubernetes.NewForConfigAndClient(config, connections)
	return api, connections.CloseIdleConnections, err
}

// testImage returns the image of the test workload, which is the Deployment web in the namespace shop.
func testImage(ctx context.Context, api kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	web, err := api.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the test image: %w", err)
	}
	return web.Spec.Template.Spec.Containers[0].Image, nil
}

// createNamespace creates a namespace, and waits until its pods can be created.
func createNamespace(ctx context.Context, api kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := api.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// deleteNamespace deletes a script's namespace, and does not wait for its end. The cluster goes when the tests end, so
// that a namespace which stays does no harm.
func (w world) deleteNamespace(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	api, closeAPI, err := w.client()
	if err != nil {
		return
	}
	defer closeAPI()
	_ = api.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
}
