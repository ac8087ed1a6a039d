package dashboard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config/gitsource"
)

// shop is the namespace of the objects that the tests look at.
const shop = "shop"

// script is content that would run if a page took it for markup.
const script = `<script>window.attacked = true</script><img src=x onerror="window.attacked = true">`

// createObjects creates an application in the namespace shop: workloads that run and one that cannot, configuration, a
// Service with an Ingress, a volume, a GitSource, and an object whose annotation is a script.
func createObjects(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, create := range []func(context.Context) error{createWorkloads, createNetwork, createConfiguration,
		createGitSources} {
		if err := create(ctx); err != nil {
			return err
		}
	}
	return eventually(ctx, "the workloads of the shop", func() error {
		d, err := client.AppsV1().Deployments(shop).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 3 {
			err = fmt.Errorf("%d pods are available", d.Status.AvailableReplicas)
		}
		return err
	})
}

// eventually calls look until it returns nil, for at most a minute.
func eventually(ctx context.Context, what string, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-tick.C:
		}
	}
}

// template returns a template of pods that run until they are deleted.
func template(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "app", Image: image,
				Command: []string{"stress-ng", "--cpu", "1", "--cpu-load", "20", "--vm-bytes", "64M"}}},
		},
	}
}

// newDeployment returns a Deployment of the namespace shop.
func newDeployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name, "registry.example/"+name+":1.0"),
		},
	}
}

func createWorkloads(ctx context.Context) error {
	web := newDeployment("web", 3)
	web.Annotations = map[string]string{"example.com/note": script}
	stuck := newDeployment("stuck", 1)
	stuck.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "fast"}
	for _, d := range []*appsv1.Deployment{web, stuck} {
		if _, err := client.AppsV1().Deployments(shop).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](2), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: template("db", "registry.example/db:15")}}
	labels = map[string]string{"app": "agent"}
	daemon := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template("agent", "registry.example/agent:2")}}
	job := template("report", "registry.example/report:1")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Containers[0].Command = []string{"true"}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "report"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 4 * * 1", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: job}}}}
	_, err := client.AppsV1().StatefulSets(shop).Create(ctx, set, metav1.CreateOptions{})
	_, err2 := client.AppsV1().DaemonSets(shop).Create(ctx, daemon, metav1.CreateOptions{})
	_, err3 := client.BatchV1().CronJobs(shop).Create(ctx, cron, metav1.CreateOptions{})
	return errors.Join(err, err2, err3)
}

func createNetwork(ctx context.Context) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: "shop.example", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/",
				PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web",
						Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}}
	_, err := client.CoreV1().Services(shop).Create(ctx, service, metav1.CreateOptions{})
	_, err2 := client.NetworkingV1().Ingresses(shop).Create(ctx, ingress, metav1.CreateOptions{})
	return errors.Join(err, err2)
}

func createConfiguration(ctx context.Context) error {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Annotations: map[string]string{
		"example.com/note": script}}, Data: map[string]string{"greeting": "hello\nworld\n", "markup": script}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"},
		StringData: map[string]string{"password": "correct horse"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{
			corev1.ReadWriteOnce}, StorageClassName: ptr.To("absent"), Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	_, err := client.CoreV1().ConfigMaps(shop).Create(ctx, settings, metav1.CreateOptions{})
	_, err2 := client.CoreV1().Secrets(shop).Create(ctx, secret, metav1.CreateOptions{})
	_, err3 := client.CoreV1().PersistentVolumeClaims(shop).Create(ctx, claim, metav1.CreateOptions{})
	return errors.Join(err, err2, err3)
}

var sources = schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
	Resource: gitsource.Resource}

// createGitSources creates the definition of GitSources, and two of them with the status that a controller would write.
func createGitSources(ctx context.Context) error {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(gitsource.Definition, &definition.Object); err != nil {
		return err
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	if _, err := dynamicClient.Resource(crds).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	ready := map[string]any{"objects": int64(3),
		"appliedRevision":  "main@sha1:3f2a9c1b5d7e8f90a1b2c3d4e5f60718293a4b5c",
		"renderedRevision": "main@sha1:3f2a9c1b5d7e8f90a1b2c3d4e5f60718293a4b5c",
		"inventory": []any{"apps/v1 Deployment shop/web", "v1 ConfigMap shop/settings",
			"v1 ConfigMap shop/gone"},
		"drifted":    []any{"ConfigMap shop/settings: data.greeting: hi → hello"},
		"conditions": []any{condition("Ready", "True", "Applied", "3 objects are applied.")}}
	failed := map[string]any{"conditions": []any{condition("Ready", "False", "FetchFailed",
		"the server does not answer")}}
	for name, status := range map[string]map[string]any{"platform": ready, "apps": failed} {
		source := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gitsource.APIVersion,
			"kind": gitsource.Kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"url": "https://git.example/" + name + ".git", "drift": "report"}}}
		to := dynamicClient.Resource(sources).Namespace(shop)
		var made *unstructured.Unstructured
		err := eventually(ctx, "GitSources to be served", func() (err error) {
			made, err = to.Create(ctx, source, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
		made.Object["status"] = status
		if _, err := to.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func condition(kind, status, reason, message string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
}

// createToken creates a service account with a cluster role, and returns a token of it.
func createToken(ctx context.Context, name, role string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

// writeKubeconfig writes a kubeconfig with a token, and returns its path.
func writeKubeconfig(name, token string) (string, error) {
	config, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		return "", err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(workDir, name+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
