package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion && job.Spec.Completions != nil
}

// index returns the completion index of a pod, if the job has it: one that was made smaller has lost some.
func index(job *batchv1.Job, pod *corev1.Pod) (int, bool) {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return i, err == nil && i >= 0 && indexed(job) && i < int(*job.Spec.Completions)
}

// completed and givenUp are the indexes that the status says have succeeded and failed.
func completed(job *batchv1.Job) map[int]bool {
	return parseIndexes(job.Status.CompletedIndexes, int(*job.Spec.Completions))
}

func givenUp(job *batchv1.Job) map[int]bool {
	if job.Status.FailedIndexes == nil {
		return map[int]bool{}
	}
	return parseIndexes(*job.Status.FailedIndexes, int(*job.Spec.Completions))
}

// parseIndexes reads those of "1,3-5" that are below a limit.
func parseIndexes(text string, limit int) map[int]bool {
	out := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for i := a; i <= b && i < limit; i++ {
			out[i] = true
		}
	}
	return out
}

func formatIndexes(set map[int]bool) string {
	all := make([]int, 0, len(set))
	for i := range set {
		all = append(all, i)
	}
	slices.Sort(all)
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(all[i]))
		case 1:
			parts = append(parts, strconv.Itoa(all[i]), strconv.Itoa(all[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
