package dev

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/clientset/versioned"
)

func metricsClient(t *testing.T, c *rest.Config) *versioned.Clientset {
	t.Helper()
	return must[*versioned.Clientset](t)(versioned.NewForConfig(c))
}

// awaitMetrics waits until the metrics of a number of pods are available, with measurements that began after a time.
func awaitMetrics(t *testing.T, ns string, pods int, since time.Time) (list *v1beta1.PodMetricsList) {
	t.Helper()
	metrics := metricsClient(t, restConfig)
	waitFor(t, "what the pods use", func(ctx context.Context) (bool, any) {
		var err error
		if list, err = metrics.MetricsV1beta1().PodMetricses(ns).List(ctx,
			metav1.ListOptions{LabelSelector: "app=web"}); err != nil {
			return false, err
		}
		for _, p := range list.Items {
			if p.Timestamp.Add(-p.Window.Duration).Before(since) {
				return false, p
			}
		}
		return len(list.Items) == pods, list
	})
	return list
}

func TestMetricsOfNodesAndPodsAreServed(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Command = strings.Fields("stress-ng --cpu 1 --cpu-load 50 --vm-bytes 64M")
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers,
			corev1.Container{Name: "idle", Image: "example.com/a:1", Command: []string{"sleep", "infinity"}})
	})
	awaitRollout(t, ns)
	pod := awaitMetrics(t, ns, 1, time.Now()).Items[0]
	if len(pod.Containers) != 2 || pod.Labels["app"] != "web" {
		t.Fatalf("%+v", pod)
	}
	for _, c := range pod.Containers {
		cpu, memory := c.Usage.Cpu().MilliValue(), c.Usage.Memory().Value()
		if c.Name == "idle" && (cpu != 0 || memory != 1<<20) ||
			c.Name == "c" && (cpu < 490 || cpu > 510 || memory != 65<<20) {
			t.Errorf("%s uses %dm and %d bytes", c.Name, cpu, memory)
		}
	}
	metrics := metricsClient(t, restConfig).MetricsV1beta1()
	one := must[*v1beta1.PodMetrics](t)(metrics.PodMetricses(ns).Get(t.Context(), pod.Name, metav1.GetOptions{}))
	if one.Name != pod.Name || len(one.Containers) != 2 {
		t.Errorf("%+v", one)
	}
	on := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), pod.Name,
		metav1.GetOptions{})).Spec.NodeName
	waitFor(t, "what the node uses", func(ctx context.Context) (bool, any) {
		n, err := metrics.NodeMetricses().Get(ctx, on, metav1.GetOptions{})
		return err == nil && n.Usage.Cpu().MilliValue() >= 490 && n.Usage.Memory().Value() >= 66<<20, n
	})
	if nodes := must[*v1beta1.NodeMetricsList](t)(metrics.NodeMetricses().List(t.Context(),
		metav1.ListOptions{LabelSelector: "kubernetes.io/hostname=" + on})); len(nodes.Items) != 1 {
		t.Errorf("%+v", nodes)
	}
	if none := must[*v1beta1.PodMetricsList](t)(metrics.PodMetricses(ns).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=other"})); len(none.Items) != 0 {
		t.Errorf("%+v", none)
	}
	_, err := metrics.PodMetricses(ns).Get(t.Context(), "none", metav1.GetOptions{})
	if want := `podmetrics.metrics.k8s.io "` + ns + `/none" not found`; !apierrors.IsNotFound(err) ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	var rows metav1.Table
	raw, err := sharedClient.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces/"+ns+"/pods").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").DoRaw(t.Context())
	if err != nil || json.Unmarshal(raw, &rows) != nil || len(rows.Rows) != 1 ||
		rows.ColumnDefinitions[1].Name != "cpu" {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestAnotherMetricsServerCanBeDeclared sends the patch that kubectl apply computes from the manifest of another
// metrics server. It is a dry run, because other tests use the existing server.
func TestAnotherMetricsServerCanBeDeclared(t *testing.T) {
	t.Parallel()
	services := dynamicClient.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
		Resource: "apiservices"})
	waitFor(t, "the API service to take another's declaration", func(ctx context.Context) (bool, any) {
		_, err := services.Patch(ctx, "v1beta1.metrics.k8s.io", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"k8s-app":"metrics-server"}},"spec":{"insecureSkipTLSVerify":true}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil, err
	})
}

func TestTheMetricsServerIsAggregated(t *testing.T) {
	t.Parallel()
	waitFor(t, "the API service", func(ctx context.Context) (bool, any) {
		s, err := dynamicClient.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
			Resource: "apiservices"}).
			Get(ctx, "v1beta1.metrics.k8s.io", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions")
		bundle, _, _ := unstructured.NestedString(s.Object, "spec", "caBundle")
		insecure, _, _ := unstructured.NestedBool(s.Object, "spec", "insecureSkipTLSVerify")
		return bundle == "" && !insecure && len(conditions) == 1 && conditions[0].(map[string]any)["status"] == "True",
			s.Object
	})
	waitFor(t, "discovery", func(context.Context) (bool, any) {
		list, err := sharedClient.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
		return err == nil && len(list.APIResources) == 2, list
	})
	waitFor(t, "its schema", func(ctx context.Context) (bool, any) {
		raw, err := sharedClient.CoreV1().RESTClient().Get().AbsPath("/openapi/v3/apis/metrics.k8s.io/v1beta1").DoRaw(
			ctx)
		return err == nil &&
			strings.Contains(string(raw), "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"), string(raw)
	})
	// It answers only the API server, whatever user another client claims in headers and whatever certificate it has.
	service := must[*corev1.Service](t)(sharedClient.CoreV1().Services("kube-system").Get(t.Context(), "metrics-server",
		metav1.GetOptions{}))
	api := must[*unstructured.Unstructured](t)(
		dynamicClient.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
			Resource: "apiservices"}).
			Get(t.Context(), "v1beta1.metrics.k8s.io", metav1.GetOptions{}),
	)
	port, _, _ := unstructured.NestedInt64(api.Object, "spec", "service", "port")
	mine := must[*tls.Config](t)(rest.TLSConfigFor(restConfig))
	mine.ServerName = "metrics-server.kube-system.svc"
	q := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+service.Spec.ExternalName+":"+strconv.FormatInt(port, 10)+"/apis/metrics.k8s.io/v1beta1/nodes", nil))
	q.Header.Set("X-Remote-User", "root")
	q.Header.Set("X-Remote-Group", "system:masters")
	answer := must[*http.Response](t)((&http.Client{Transport: &http.Transport{TLSClientConfig: mine}}).Do(q))
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a direct request of an administrator: %s", answer.Status)
	}
}

func TestViewersOfANamespaceSeeItsPodMetrics(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	must[*rbacv1.RoleBinding](t)(sharedClient.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: "viewer",
		}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer-" + ns}},
	}, metav1.CreateOptions{}))
	as := rest.CopyConfig(restConfig)
	as.Impersonate.UserName = "viewer-" + ns
	metrics := metricsClient(t, as).MetricsV1beta1()
	waitFor(t, "a viewer's answer", func(ctx context.Context) (bool, any) {
		_, err := metrics.PodMetricses(ns).List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	if _, err := metrics.NodeMetricses().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("nodes for a viewer of a namespace: %v", err)
	}
}
