package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/gitsource"
)

// see waits until look returns nil.
func see(t *testing.T, what string, look func() error) {
	t.Helper()
	if err := eventually(t.Context(), what, look); err != nil {
		t.Fatal(err)
	}
}

// createDeployment creates a Deployment for one test, and waits until its pods are available.
func createDeployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	d, err := client.AppsV1().Deployments(shop).Create(t.Context(), newDeployment(name, 1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := client.AppsV1().Deployments(shop).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	waitDeployment(t, name, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 1 })
	return d
}

// waitDeployment waits until a Deployment fulfils a condition.
func waitDeployment(t *testing.T, name string, isDone func(d *appsv1.Deployment) bool) {
	t.Helper()
	see(t, "Deployment "+name, func() error {
		d, err := client.AppsV1().Deployments(shop).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !isDone(d) {
			err = fmt.Errorf("it is %+v, with the status %+v", d.Spec, d.Status)
		}
		return err
	})
}

// changeImage returns a JSON patch of the first container's image.
func changeImage(image string) []byte {
	return fmt.Appendf(nil, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
}

func TestADeploymentIsScaledRestartedPausedAndRolledBack(t *testing.T) {
	name := "actions"
	createDeployment(t, name)
	p := openTab(t, board, "/p/object/apps/v1/deployments/shop/"+name)

	p.click("button", "Scale")
	p.replace("dialog input", "2")
	p.picture("scale-light")
	p.checkContrast("the dialog")
	p.keys("\r")
	p.waitText("is scaled to 2")
	waitDeployment(t, name, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })

	p.click("button", "Restart")
	p.click("dialog button", "Restart")
	p.waitText("restarts.")
	waitDeployment(t, name, func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != ""
	})

	p.click("button", "Pause")
	waitDeployment(t, name, func(d *appsv1.Deployment) bool { return d.Spec.Paused })
	p.click("button", "Resume")
	waitDeployment(t, name, func(d *appsv1.Deployment) bool { return !d.Spec.Paused })

	_, err := client.AppsV1().Deployments(shop).Patch(t.Context(), name, types.JSONPatchType,
		changeImage("registry.example/bad:2"), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitDeployment(t, name, func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation &&
			d.Status.UpdatedReplicas == 2
	})
	p.waitText("registry.example/bad:2")
	p.click("button", "Roll back")
	p.wait("the changes", `document.querySelector('dialog .diff .added')`)
	p.picture("rollback-light")
	p.click("dialog button", "Roll back")
	p.waitText("rolls back to revision")
	waitDeployment(t, name, func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example/actions:1.0"
	})
}

func TestAStatefulSetIsRolledBack(t *testing.T) {
	sets := client.AppsV1().StatefulSets(shop)
	labels := map[string]string{"app": "rolled"}
	_, err := sets.Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "rolled"},
		Spec: appsv1.StatefulSetSpec{ServiceName: "rolled", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template("rolled", "registry.example/rolled:1")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sets.Delete(context.WithoutCancel(t.Context()), "rolled", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	updated := func(image string) {
		t.Helper()
		see(t, "the StatefulSet with "+image, func() error {
			set, err := sets.Get(t.Context(), "rolled", metav1.GetOptions{})
			if err == nil && (set.Spec.Template.Spec.Containers[0].Image != image ||
				set.Status.ObservedGeneration != set.Generation || set.Status.AvailableReplicas != 1) {
				err = fmt.Errorf("it is %+v, with the status %+v", set.Spec, set.Status)
			}
			return err
		})
	}
	updated("registry.example/rolled:1")
	if _, err := sets.Patch(t.Context(), "rolled", types.JSONPatchType, changeImage("registry.example/rolled:2"),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	updated("registry.example/rolled:2")
	p := openTab(t, board, "/p/object/apps/v1/statefulsets/shop/rolled")
	p.click("button", "Roll back")
	p.click("dialog button", "Roll back")
	p.waitText("rolls back to revision 1")
	updated("registry.example/rolled:1")
}

func TestAnObjectIsDeletedOnlyAfterItsNameIsTyped(t *testing.T) {
	createDeployment(t, "doomed")
	p := openTab(t, board, "/p/object/apps/v1/deployments/shop/doomed")
	p.click("button", "Delete")
	p.wait("the dialog", element("dialog button", "Delete")+"?.disabled")
	p.replace("dialog input", "doome")
	if !evaluate[bool](p, element("dialog button", "Delete")+".disabled") {
		t.Error("a part of the name is enough to delete")
	}
	p.keys("d")
	p.picture("delete-light")
	p.checkContrast("the dialog")
	p.click("dialog button", "Delete")
	p.waitText("is being deleted")
	see(t, "the Deployment to be deleted", func() error {
		_, err := client.AppsV1().Deployments(shop).Get(t.Context(), "doomed", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it exists"), err)
	})
	p.waitText("This object has been deleted.")
}

func TestACronJobIsSuspendedResumedAndRunNow(t *testing.T) {
	p := openTab(t, board, "/p/object/batch/v1/cronjobs/shop/report")
	suspended := func(want bool) {
		t.Helper()
		see(t, "the CronJob", func() error {
			job, err := client.BatchV1().CronJobs(shop).Get(t.Context(), "report", metav1.GetOptions{})
			if err == nil && *job.Spec.Suspend != want {
				err = fmt.Errorf("suspend is %t", *job.Spec.Suspend)
			}
			return err
		})
	}
	p.click("button", "Suspend")
	suspended(true)
	p.click("button", "Resume")
	suspended(false)
	p.click("button", "Run now")
	p.click("dialog button", "Run now")
	p.wait("the page of the Job", `location.pathname.startsWith('/p/object/batch/v1/jobs/shop/report-')`)
	p.waitText("CronJob report")
}

func TestANodeIsCordonedDrainedAndUncordoned(t *testing.T) {
	p := openTab(t, board, "/p/nodes")
	unschedulable := func(want bool) {
		t.Helper()
		see(t, "node-3", func() error {
			node, err := client.CoreV1().Nodes().Get(t.Context(), "node-3", metav1.GetOptions{})
			if err == nil && node.Spec.Unschedulable != want {
				err = fmt.Errorf("unschedulable is %t", node.Spec.Unschedulable)
			}
			return err
		})
	}
	p.click("button", "Cordon node-3")
	unschedulable(true)
	p.click("button", "Uncordon node-3")
	unschedulable(false)
	p.click("button", "Drain node-3")
	p.wait("the list of pods", element("dialog button", "Drain")+"?.disabled === false")
	p.picture("drain-light")
	p.click("dialog button", "Drain")
	p.waitText("Node node-3 is drained.")
	pods, err := client.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{
		FieldSelector: "spec.nodeName=node-3,status.phase=Running"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if owner := metav1.GetControllerOf(&pod); owner == nil || owner.Kind != "DaemonSet" {
			t.Errorf("pod %s is still on the node", pod.Name)
		}
	}
	p.click("dialog button", "Close")
	p.click("button", "Uncordon node-3")
	unschedulable(false)
}

func TestAGitSourceShowsItsTreeAndIsSyncedAndSuspended(t *testing.T) {
	p := openTab(t, board, "/p/gitops?ns=shop")
	p.expect("/configmaps/gone") // an object of the inventory that does not exist
	p.click("button", "Objects of platform")
	p.waitText("data.greeting: hi → hello")
	p.wait("the health of the objects", `[...document.querySelectorAll('.inventory li')].map((li) => li.innerText.replace(
		/\s+/g, ' ')).join('; ') === 'ConfigMap shop/gone Missing; ConfigMap shop/settings Exists Drifted; ' +
		'Deployment shop/web 3/3'`)
	p.picture("gitops-open-light")
	p.checkContrast("an open source")
	get := func() (annotation string, isSuspended bool) {
		t.Helper()
		source, err := dynamicClient.Resource(sources).Namespace(shop).Get(t.Context(), "platform", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(source.Object["spec"])
		var spec gitsource.Spec
		if err := json.Unmarshal(data, &spec); err != nil {
			t.Fatal(err)
		}
		return source.GetAnnotations()[gitsource.SyncAnnotation], spec.Suspend
	}
	p.click("button", "Sync platform")
	see(t, "the annotation", func() error {
		if annotation, _ := get(); annotation == "" {
			return errors.New("it is missing")
		}
		return nil
	})
	for _, action := range []string{"Suspend", "Resume"} {
		p.click("button", action+" platform")
		see(t, action, func() error {
			if _, isSuspended := get(); isSuspended != (action == "Suspend") {
				return errors.New("the source is not changed")
			}
			return nil
		})
	}
}

func TestASecretsValuesAreHiddenUntilTheyAreShown(t *testing.T) {
	p := openTab(t, board, "/p/object/core/v1/secrets/shop/login")
	p.waitText("password")
	hidden := `!document.body.innerText.includes('correct horse') && !document.body.innerText.includes('Y29ycmVjdCBob3JzZQ')`
	if !evaluate[bool](p, hidden) {
		t.Error("the value is shown at once")
	}
	p.click("button", "Show")
	p.waitText("correct horse")
	p.click("button", "Hide")
	p.wait("the value to be hidden", hidden)
	p.click("button[role=tab]", "YAML")
	p.waitText("kind: Secret")
	if !evaluate[bool](p, hidden) {
		t.Error("the YAML shows the value at once")
	}
	p.click("button", "Show values")
	p.waitText("Y29ycmVjdCBob3JzZQ")
}

func TestAConfigMapIsEditedAsYAMLAfterADryRunAndADiff(t *testing.T) {
	maps := client.CoreV1().ConfigMaps(shop)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "edited"},
		Data: map[string]string{"color": "red", "text": "one\ntwo\n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := openTab(t, board, "/p/object/core/v1/configmaps/shop/edited?tab=yaml")
	p.click("button", "Edit")
	change := func(from, to string) {
		t.Helper()
		p.wait("the editor", element("textarea", ""))
		evaluate[bool](p, fmt.Sprintf(`(() => { const e = document.querySelector('main textarea');
			e.value = e.value.replace(%s, %s); return true; })()`, quote(from), quote(to)))
	}
	change("color: red", "color: green\n  wrong: [1]")
	p.expect("400")
	p.click("button", "Check changes")
	p.wait("the server's refusal", `document.querySelector('.note.bad:not([hidden])')?.innerText.includes('ConfigMap.data')`)
	change("\n  wrong: [1]", "")
	p.click("button", "Check changes")
	p.wait("the changes", `[...document.querySelectorAll('.diff .removed, .diff .added')].map((e) => e.innerText.replace(
		/\s+/g, ' ')).join('; ').includes('color: red')`)
	p.picture("diff-light")
	p.scheme("dark")
	p.picture("diff-dark")
	p.checkContrast("the changes")
	if m, err := maps.Get(t.Context(), "edited", metav1.GetOptions{}); err != nil || m.Data["color"] != "red" {
		t.Fatalf("the dry run has changed the object: %v, %v", m, err)
	}
	p.click("button", "Apply")
	p.waitText("ConfigMap edited is changed.")
	m, err := maps.Get(t.Context(), "edited", metav1.GetOptions{})
	if err != nil || m.Data["color"] != "green" || m.Data["text"] != "one\ntwo\n" {
		t.Fatalf("the object is %v, %v", m, err)
	}

	p.click("button", "Edit")
	change("color: green", "color: blue")
	m.Data["color"] = "white"
	if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("409")
	p.click("button", "Check changes")
	p.waitText("The object has changed meanwhile.")
}
