package block

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/daemons/kinds"
	"clusterctl/hcl/config"
)

// formDecoder decodes the attributes and blocks of a workload that depend on its kind, and the objects that belong to
// it.
type formDecoder struct {
	b     *hcl.Block
	raw   *workloadBlock
	w     *config.Workload
	diags hcl.Diagnostics
}

// decodeForm decodes what depends on the kind of a workload, and the objects that belong to it.
func decodeForm(b *hcl.Block, raw *workloadBlock, w *config.Workload) hcl.Diagnostics {
	d := &formDecoder{b: b, raw: raw, w: w}
	if d.rejectOtherKinds(); d.diags.HasErrors() {
		return d.diags
	}
	d.decodeNames()
	d.decodeRollout()
	d.decodeJob()
	d.decodeCron()
	d.decodeIngress()
	d.decodeAutoscaling()
	d.decodeBudget()
	d.decodeNetworkPolicy()
	return d.diags
}

// wrong adds an error at an attribute or a nested block.
func (d *formDecoder) wrong(name, summary, format string, args ...any) {
	d.diags = append(d.diags, newError(attributeRange(d.b, d.b.Body, name), summary, format, args...))
}

// rejectOtherKinds adds an error for each attribute and block that the workload's kind does not have.
func (d *formDecoder) rejectOtherKinds() {
	v := reflect.ValueOf(d.raw).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		allowed := strings.Fields(f.Tag.Get("kinds"))
		if len(allowed) == 0 || v.Field(i).IsZero() || slices.Contains(allowed, d.w.Kind) {
			continue
		}
		name, typ, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		what := "attribute"
		if typ == "block" {
			what = "block"
		}
		where := "the kind " + allowed[0] + " has"
		if len(allowed) > 1 {
			where = "the kinds " + joinWords(allowed) + " have"
		}
		d.wrong(name, "Unsupported "+what, "A %s has no %s. Only %s it.", d.w.Kind, name, where)
	}
}

// decodeNames checks the names that the objects of a workload get.
func (d *formDecoder) decodeNames() {
	for _, name := range sortedKeys(d.w.Secrets) {
		if errs := validation.IsConfigMapKey(name); len(errs) > 0 {
			d.wrong("secrets", "Invalid name of a secret", "%q: %s.", name, errs[0])
		}
	}
	if d.w.Kind == config.KindCronJob && len(d.w.Name) > maxCronJobName {
		d.diags = append(d.diags, newError(labelRange(d.b, "name"), "Invalid workload name",
			"The name of a CronJob has at most %d characters, because its Jobs' names are longer.", maxCronJobName))
	}
}

// maxCronJobName is the maximum length of a CronJob's name: its Jobs' names have 11 characters more.
const maxCronJobName = validation.DNS1123LabelMaxLength - 11

// choice checks that an attribute is "" or one of the allowed texts.
func (d *formDecoder) choice(name, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		d.wrong(name, "Invalid "+name, "%q is not known.%s Write %s.", value, Suggest(value, allowed),
			strings.Join(allowed, " or "))
	}
}

// amount checks that an attribute is not set or a number that the API accepts.
func (d *formDecoder) amount(name string, value *int, minimum int) {
	if value != nil && (*value < minimum || *value > math.MaxInt32) {
		d.wrong(name, "Invalid "+name, "%d is not a number from %d to %d.", *value, minimum, math.MaxInt32)
	}
}

// seconds returns a duration in seconds, or nil if it is not set.
func (d *formDecoder) seconds(name, text string, minimum int) *int {
	if text == "" {
		return nil
	}
	value, err := time.ParseDuration(text)
	switch n := int(value / time.Second); {
	case err != nil:
		d.wrong(name, "Invalid duration", "%q is not a duration such as \"30s\" or \"5m\".", text)
	case value%time.Second != 0:
		d.wrong(name, "Invalid duration", "%s is not a number of whole seconds.", text)
	case n < minimum || n > math.MaxInt32:
		d.wrong(name, "Invalid duration", "%s is not between %ds and %ds.", text, minimum, math.MaxInt32)
	default:
		return &n
	}
	return nil
}

// isShare reports whether a text is a number that is not negative, or a percentage of at most 100 if it is limited.
func isShare(text string, isLimited bool) bool {
	number, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseInt(number, 10, 32)
	return err == nil && n >= 0 && (n <= 100 || !isPercent || !isLimited)
}

func (d *formDecoder) decodeRollout() {
	raw := d.raw
	d.w.Rollout = config.Rollout{Strategy: raw.Strategy, MaxSurge: raw.MaxSurge, MaxUnavailable: raw.MaxUnavailable,
		MinReady: valueOr(d.seconds("min_ready", raw.MinReady, 0), 0)}
	d.w.StatefulSet.PodManagement, d.w.StatefulSet.ServiceName = raw.PodManagement, raw.ServiceName
	d.amount("replicas", raw.Replicas, 0)
	if d.w.Kind == config.KindDeployment {
		d.choice("strategy", raw.Strategy, "RollingUpdate", "Recreate")
	} else {
		d.choice("strategy", raw.Strategy, "RollingUpdate", "OnDelete")
	}
	d.choice("pod_management", raw.PodManagement, "OrderedReady", "Parallel")
	if name := raw.ServiceName; name != "" && len(validation.IsDNS1035Label(name)) > 0 {
		d.wrong("service_name", "Invalid service_name", "%q: %s.", name, validation.IsDNS1035Label(name)[0])
	}
	texts := map[string]string{"max_surge": raw.MaxSurge, "max_unavailable": raw.MaxUnavailable}
	for _, name := range sortedKeys(texts) {
		text := texts[name]
		switch {
		case text == "":
		case raw.Strategy != "" && raw.Strategy != "RollingUpdate":
			d.wrong(name, "Invalid "+name, "Only the strategy RollingUpdate has %s.", name)
		case !isShare(text, name == "max_unavailable"):
			d.wrong(name, "Invalid "+name, "%q is not a number of pods, as 1, or a percentage, as \"25%%\".", text)
		}
	}
	isZero := func(text string) bool { return strings.Trim(strings.TrimSuffix(text, "%"), "0") == "" && text != "" }
	if isZero(raw.MaxUnavailable) && (isZero(raw.MaxSurge) || raw.MaxSurge == "" && d.w.Kind == config.KindDaemonSet) {
		d.wrong("max_unavailable", "Invalid max_unavailable",
			"max_unavailable and max_surge are both 0, so no pod could be replaced.")
	}
}

func (d *formDecoder) decodeJob() {
	if d.w.Kind != config.KindJob && d.w.Kind != config.KindCronJob {
		return
	}
	raw := d.raw
	d.w.Job = config.Job{
		Completions: raw.Completions, Parallelism: raw.Parallelism, BackoffLimit: raw.BackoffLimit,
		ActiveDeadline:   d.seconds("active_deadline", raw.ActiveDeadline, 1),
		TTLAfterFinished: d.seconds("ttl_after_finished", raw.TTL, 0),
		Indexed:          raw.Indexed, RestartPolicy: orDefault(raw.RestartPolicy, "OnFailure"),
	}
	d.amount("completions", raw.Completions, 0)
	d.amount("parallelism", raw.Parallelism, 0)
	d.amount("backoff_limit", raw.BackoffLimit, 0)
	d.choice("restart_policy", raw.RestartPolicy, "OnFailure", "Never")
	if raw.Indexed && raw.Completions == nil {
		d.wrong("indexed", "Invalid indexed", "An indexed Job needs completions, the number of its indexes.")
	}
	const maximum = 100_000 // the API's limit of both
	if raw.Indexed && (valueOr(raw.Completions, 0) > maximum && valueOr(raw.Parallelism, 0) > maximum/10) {
		d.wrong("parallelism", "Invalid parallelism", "With more than %d completions, it is at most %d.", maximum,
			maximum/10)
	}
	if raw.Indexed && valueOr(raw.Parallelism, 0) > maximum {
		d.wrong("parallelism", "Invalid parallelism", "An indexed Job runs at most %d pods at the same time.", maximum)
	}
}

func (d *formDecoder) decodeCron() {
	if d.w.Kind != config.KindCronJob {
		return
	}
	raw := d.raw
	d.w.Cron = config.Cron{Schedule: raw.Schedule, TimeZone: raw.TimeZone, Concurrency: raw.Concurrency,
		SuccessfulHistory: raw.Successful, FailedHistory: raw.Failed, Suspend: raw.Suspend,
		StartingDeadline: d.seconds("starting_deadline", raw.StartDeadline, 0)}
	d.choice("concurrency", raw.Concurrency, "Allow", "Forbid", "Replace")
	d.amount("successful_history", raw.Successful, 0)
	d.amount("failed_history", raw.Failed, 0)
	if raw.Schedule == "" {
		d.wrong("schedule", "No schedule", "A CronJob has a schedule, as schedule = \"0 3 * * *\".")
		return
	}
	cron := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: raw.Schedule}}
	if raw.TimeZone != "" {
		cron.Spec.TimeZone = &raw.TimeZone
	}
	names := map[string]string{"spec.schedule": "schedule", "spec.timeZone": "time_zone"}
	for _, err := range kinds.CheckNew(batchv1.SchemeGroupVersion.WithKind("CronJob"), cron) {
		if name := names[err.Field]; name != "" {
			d.wrong(name, "Invalid "+name, "%q: %s.", err.BadValue, strings.TrimSuffix(err.Detail, "."))
		}
	}
}
