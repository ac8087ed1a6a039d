package why

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// containerFinding returns why a container is not as it should be, or nil. A container that waits for others has no
// finding of its own.
func (x containerExplainer) containerFinding(ctx context.Context, p *corev1.Pod, s corev1.ContainerStatus) *finding {
	spec, isInit := findContainer(p, s.Name)
	if spec == nil {
		return nil
	}
	switch {
	case s.State.Waiting != nil:
		return x.waitingContainer(ctx, p, spec, s)
	case s.State.Terminated != nil:
		if s.State.Terminated.ExitCode == 0 && (isInit || p.Status.Phase != corev1.PodRunning ||
			p.Spec.RestartPolicy != corev1.RestartPolicyAlways) {
			return nil
		}
		return x.crashed(ctx, p, spec, s, s.State.Terminated, false)
	case s.State.Running != nil && isInit && !isSidecar(spec):
		return broken(refTo("Pod", p), "does not run", fmt.Sprintf("its init container %s has not finished yet",
			s.Name), statusEvidence(s.Name, "state.running"), Remedy{Text: "Read what it does.",
			Command: logsCommand(p, s.Name, false)})
	case s.State.Running != nil && !s.Ready:
		return x.unreadyContainer(ctx, p, spec, s)
	}
	return nil
}

func findContainer(p *corev1.Pod, name string) (spec *corev1.Container, isInit bool) {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return &p.Spec.InitContainers[i], true
		}
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return &p.Spec.Containers[i], false
		}
	}
	return nil, false
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func statusEvidence(container, field string) string {
	return fmt.Sprintf("status.containerStatuses[%s].%s", container, field)
}

func logsCommand(p *corev1.Pod, container string, previous bool) string {
	command := fmt.Sprintf("kubectl logs -n %s %s -c %s", p.Namespace, p.Name, container)
	if previous {
		command += " --previous"
	}
	return command
}

// containerField names a field of a container where it can be changed.
func (x containerExplainer) containerField(ctx context.Context, p *corev1.Pod, c *corev1.Container,
	field string) string {
	list := "containers"
	if _, isInit := findContainer(p, c.Name); isInit {
		list = "initContainers"
	}
	return x.template().field(ctx, p, fmt.Sprintf("%s[%s].%s", list, c.Name, field))
}

func (x containerExplainer) waitingContainer(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, s corev1.ContainerStatus,
) *finding {
	const state = "does not run"
	ref, w := refTo("Pod", p), s.State.Waiting
	evidence := statusEvidence(s.Name, "state.waiting")
	switch w.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return nil // notStarted explains these
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
		"ImageInspectError", "SignatureValidationFailed":
		return x.imageFinding(ctx, p, spec, w)
	case "CrashLoopBackOff":
		if ended := s.LastTerminationState.Terminated; ended != nil {
			return x.crashed(ctx, p, spec, s, ended, true)
		}
	case "CreateContainerConfigError":
		if f := x.reference().missingByMessage(ctx, p, w.Message, evidence); f != nil {
			f.state = state
			return f
		}
		if strings.Contains(w.Message, "runAsNonRoot") {
			return broken(ref, state, fmt.Sprintf("container %s must not run as root, but its image does: %s", s.Name,
				clause(w.Message)), evidence, Remedy{Text: "Set a user other than 0, or build the image with one.",
				Field:   x.containerField(ctx, p, spec, "securityContext.runAsUser"),
				Command: x.template().editCommand(ctx, p)})
		}
	case "RunContainerError", "StartError", "CreateContainerError", "ContainerCannotRun":
		return x.cannotStart(ctx, p, spec, w.Message, evidence)
	case "PostStartHookError":
		return broken(ref, state, fmt.Sprintf("the postStart hook of container %s fails: %s", s.Name,
			clause(w.Message)), evidence, Remedy{Text: "Correct the hook.",
			Field: x.containerField(ctx, p, spec, "lifecycle.postStart"), Command: x.template().editCommand(ctx, p)})
	}
	return broken(ref, state, fmt.Sprintf("container %s cannot start (%s): %s", s.Name, w.Reason, clause(w.Message)),
		evidence, Remedy{Text: "Correct the container.", Field: x.containerField(ctx, p, spec, "…"),
			Command: x.template().editCommand(ctx, p)}, describeRemedy(ref))
}

// cannotStart returns the finding of a container whose program the runtime cannot start.
func (x containerExplainer) cannotStart(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, message, evidence string,
) *finding {
	reason := fmt.Sprintf("container %s cannot be started: %s", spec.Name, clause(message))
	if strings.Contains(message, "executable file not found") || strings.Contains(message,
		"no such file or directory") {
		reason = fmt.Sprintf("the program of container %s is not in its image: %s", spec.Name, clause(message))
	}
	return broken(refTo("Pod", p), "does not run", reason, evidence, Remedy{
		Text: "Correct the command, or use an image that contains it.", Command: x.template().editCommand(ctx, p),
		Field: x.containerField(ctx, p, spec, "command")})
}

// imageFinding returns why an image cannot be pulled.
func (x containerExplainer) imageFinding(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, w *corev1.ContainerStateWaiting,
) *finding {
	const state = "does not run"
	ref, evidence := refTo("Pod", p), statusEvidence(spec.Name, "state.waiting")
	message := w.Message
	if e := findPullEvent(x.eventsOf(ctx, ref, p), spec.Image); e != nil && len(e.Message) > len(message) {
		message, evidence = e.Message, eventEvidence(e)
	}
	image := Remedy{Text: "Use an image that exists.", Field: x.containerField(ctx, p, spec, "image"),
		Command: x.template().setCommand(ctx, p, "image", spec.Name, "IMAGE")}
	lower := strings.ToLower(message)
	mentions := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
	}
	var reason string
	switch {
	case w.Reason == "InvalidImageName":
		reason, image.Text = fmt.Sprintf("%q is not a valid name of an image", spec.Image), "Correct the name."
	case w.Reason == "ErrImageNeverPull":
		reason = fmt.Sprintf("image %s is not on node %s, and imagePullPolicy is Never", spec.Image, p.Spec.NodeName)
		image = Remedy{Text: "Load the image onto the node, or allow pulling it.",
			Field:   x.containerField(ctx, p, spec, "imagePullPolicy"),
			Command: x.template().editCommand(ctx, p)}
	case mentions("toomanyrequests", "429", "rate limit"):
		reason = fmt.Sprintf("the registry of image %s limits the rate of pulls", spec.Image)
		image = Remedy{Text: "Pull with credentials, or from a mirror.",
			Field: x.template().field(ctx, p, "imagePullSecrets"), Command: x.template().editCommand(ctx, p)}
	case mentions("unauthorized", "authentication required", "access denied", "denied:", "403 forbidden", "401"):
		reason = fmt.Sprintf(
			"the registry refuses to hand out image %s without other credentials, or it does not exist",
			spec.Image)
		image = Remedy{Text: "Name a pull secret that the registry accepts.",
			Field: x.template().field(ctx, p, "imagePullSecrets"),
			Command: "kubectl create secret docker-registry -n " + p.Namespace + " NAME " +
				"--docker-server=SERVER --docker-username=USER --docker-password=PASSWORD"}
	case mentions("x509", "certificate"):
		reason = fmt.Sprintf("node %s does not trust the certificate of the registry of image %s", p.Spec.NodeName,
			spec.Image)
		image = Remedy{Text: "Declare the registry's CA in a registry block, and run clusterctl apply.",
			Command: "clusterctl apply"}
	case mentions("no such host", "dial tcp", "i/o timeout", "connection refused", "no route to host",
		"deadline exceeded"):
		reason = fmt.Sprintf("node %s does not reach the registry of image %s", p.Spec.NodeName, spec.Image)
		image = Remedy{Text: "Check the registry's name, and the network and proxy of the node.",
			Field: image.Field, Command: "clusterctl ssh " + p.Spec.NodeName + " curl -sSI https://" +
				registryOf(spec.Image) + "/v2/"}
	case mentions("not found", "manifest unknown", "not_found", "name unknown"):
		reason = fmt.Sprintf("image %s does not exist", spec.Image)
	default:
		reason = fmt.Sprintf("image %s cannot be pulled", spec.Image)
	}
	f := broken(ref, state, reason, evidence, image)
	f.steps[0].Text = sentence(fmt.Sprintf("container %s waits for its image: %s", spec.Name, reason))
	if message = clause(message); message != "" && !strings.Contains(reason, message) {
		f.add(ref, "the node reports: "+message, evidence)
	}
	return f
}

func findPullEvent(events []*corev1.Event, image string) *corev1.Event {
	for _, e := range events {
		if e.Reason == "Failed" && strings.HasPrefix(e.Message, "Failed to pull image") &&
			strings.Contains(e.Message, image) {
			return e
		}
	}
	return nil
}

// registryOf returns the server that an image is pulled from.
func registryOf(image string) string {
	first, _, hasPath := strings.Cut(image, "/")
	if hasPath && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return arg(first)
	}
	return "registry-1.docker.io"
}

// crashed returns why a container has ended. previous means that another one waits to be started in its place.
func (x containerExplainer) crashed(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, s corev1.ContainerStatus,
	ended *corev1.ContainerStateTerminated, previous bool,
) *finding {
	const state = "does not run"
	ref := refTo("Pod", p)
	evidence := statusEvidence(s.Name, "state.terminated")
	if previous {
		evidence = statusEvidence(s.Name, "lastState.terminated")
	}
	if probe := x.killedByProbe(ctx, p, spec, s, ended); probe != nil {
		return probe
	}
	if ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun" {
		return x.cannotStart(ctx, p, spec, ended.Message, evidence)
	}
	logs := Remedy{Text: "Read the whole log of the container that ended.", Command: logsCommand(p, s.Name,
		s.RestartCount > 0)}
	var f *finding
	switch {
	case ended.Reason == "OOMKilled":
		f = x.outOfMemory(ctx, p, spec, evidence)
	case ended.ExitCode == 0:
		f = broken(ref, state, fmt.Sprintf(
			"the program of container %s ends with exit code 0, although it should keep running", s.Name), evidence,
			logs, Remedy{Text: "Start a program that stays in the foreground, or use a Job.",
				Field: x.containerField(ctx, p, spec, "command"), Command: x.template().editCommand(ctx, p)})
	default:
		f = broken(ref, state, fmt.Sprintf("the program of container %s ends with %s", s.Name, exitText(ended)),
			evidence, logs)
		if ended.ExitCode == 126 || ended.ExitCode == 127 {
			f.remedy(Remedy{Text: "Correct the command.", Field: x.containerField(ctx, p, spec, "command"),
				Command: x.template().editCommand(ctx, p)})
		}
	}
	if s.RestartCount > 0 {
		f.steps[0].Text += fmt.Sprintf(" It was restarted %s.", count(s.RestartCount, "time"))
	}
	words := x.lastWords(ctx, p, s.Name, previous)
	if words == "" {
		words = ended.Message
	}
	if words != "" {
		f.add(ref, fmt.Sprintf("the last lines of container %s: %s", s.Name, words), "log of container "+s.Name)
		x.policy().addNetworkTrouble(ctx, f, p, words)
	}
	return f
}

func (x containerExplainer) outOfMemory(ctx context.Context, p *corev1.Pod, spec *corev1.Container,
	evidence string) *finding {
	reason := fmt.Sprintf("node %s ran out of memory and killed container %s, which has no memory limit",
		p.Spec.NodeName, spec.Name)
	limit, ok := spec.Resources.Limits[corev1.ResourceMemory]
	if ok {
		reason = fmt.Sprintf("container %s is killed because it uses more than its memory limit of %s", spec.Name,
			limit.String())
	}
	return broken(refTo("Pod", p), "does not run", reason, evidence, Remedy{
		Text: "Raise the memory limit, or make the program use less.", Field: x.containerField(ctx, p, spec,
			"resources.limits.memory"),
		Command: x.template().setCommand(ctx, p, "resources", spec.Name, "--limits=memory=AMOUNT")})
}

// exitText describes an exit code.
func exitText(ended *corev1.ContainerStateTerminated) string {
	meaning := map[int32]string{
		126: "its file cannot be executed", 127: "its command was not found", 134: "it aborted",
		137: "it was killed", 139: "it accessed invalid memory", 143: "it was asked to stop",
	}[ended.ExitCode]
	text := fmt.Sprintf("exit code %d", ended.ExitCode)
	if meaning != "" {
		text += " (" + meaning + ")"
	}
	return text
}

// killedByProbe returns the finding of a container that the kubelet killed because a probe failed, or nil.
func (x containerExplainer) killedByProbe(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, s corev1.ContainerStatus,
	ended *corev1.ContainerStateTerminated,
) *finding {
	if ended.Reason == "OOMKilled" || s.RestartCount == 0 {
		return nil
	}
	for _, e := range x.containerEvents(ctx, p, spec.Name) {
		if e.Reason != "Killing" || EventTime(e).Before(ended.StartedAt.Time) { // it is about an earlier start
			continue
		}
		for _, name := range []string{"liveness", "startup"} {
			if strings.Contains(e.Message, "failed "+name+" probe") {
				f := x.probeFinding(ctx, p, spec, name, "does not run")
				f.steps[0].Text += fmt.Sprintf(" The kubelet restarted the container %s for it.",
					count(s.RestartCount, "time"))
				return f
			}
		}
	}
	return nil
}

// containerEvents returns the events of a container, and those of the pod that name it.
func (x containerExplainer) containerEvents(ctx context.Context, p *corev1.Pod, name string) (out []*corev1.Event) {
	for _, e := range x.eventsOf(ctx, refTo("Pod", p), p) {
		path := e.InvolvedObject.FieldPath
		if path == "" && strings.Contains(e.Message, "ontainer "+name) || strings.HasSuffix(path, "{"+name+"}") {
			out = append(out, e)
		}
	}
	return out
}

func (x containerExplainer) unreadyContainer(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, s corev1.ContainerStatus,
) *finding {
	switch {
	case spec.StartupProbe != nil && (s.Started == nil || !*s.Started):
		return x.probeFinding(ctx, p, spec, "startup", "is not ready")
	case spec.ReadinessProbe != nil:
		return x.probeFinding(ctx, p, spec, "readiness", "is not ready")
	}
	return nil
}

var probeStatus = regexp.MustCompile(`statuscode: (\d+)`)

// probeFinding returns why a probe fails, from its last answer.
func (x containerExplainer) probeFinding(
	ctx context.Context, p *corev1.Pod, spec *corev1.Container, name, state string,
) *finding {
	ref := refTo("Pod", p)
	field := x.containerField(ctx, p, spec, name+"Probe")
	remedy := Remedy{Text: "Make the program answer the probe, or correct the probe.", Field: field,
		Command: logsCommand(p, spec.Name, false)}
	var last *corev1.Event
	for _, e := range x.containerEvents(ctx, p, spec.Name) {
		if e.Reason == "Unhealthy" && strings.HasPrefix(strings.ToLower(e.Message), name+" probe") {
			last = e
			break
		}
	}
	if last == nil {
		return broken(ref, state, fmt.Sprintf("the %s probe of container %s has not succeeded", name, spec.Name),
			statusEvidence(spec.Name, "ready"), remedy)
	}
	_, answer, _ := strings.Cut(last.Message, ": ")
	answer = clause(answer)
	code := probeStatus.FindStringSubmatch(answer)
	switch {
	case strings.Contains(answer, "connection refused"):
		answer = "nothing listens on its port (" + answer + ")"
		remedy.Text = "Let the program listen on the port of the probe, or correct the port."
	case code != nil && code[1] == "404":
		answer = "its path does not exist (" + answer + ")"
		remedy.Text = "Correct the path of the probe."
		remedy.Field += " (httpGet.path)"
	case code != nil && (code[1] == "401" || code[1] == "403"):
		answer = "its path needs credentials (" + answer + ")"
		remedy.Text = "Probe a path that needs no credentials."
	case strings.Contains(answer, "deadline exceeded"), strings.Contains(answer, "timeout"),
		strings.Contains(answer, "timed out"):
		answer = "no answer came in time (" + answer + ")"
		remedy.Text = "Make the program answer faster, or allow more time."
		remedy.Field += " (timeoutSeconds)"
	}
	return broken(ref, state, fmt.Sprintf("the %s probe of container %s fails: %s", name, spec.Name, answer),
		eventEvidence(last), remedy)
}
