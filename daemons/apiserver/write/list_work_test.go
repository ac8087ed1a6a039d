package write

import "testing"

func TestListsOfADocumentAreCounted(t *testing.T) {
	for text, want := range map[string]listSizes{
		``: {}, `{}`: {}, `[]`: {}, `[ ]`: {}, `[1]`: {1, 1}, `{"a":[1,"x,]",{"b":[[],2,3]}],"c":{"d":1,"e":2}}`: {6, 3},
		`["\"]",[1,2,3,4]]`: {6, 4}, `]`: {}, `[[1,2`: {},
	} {
		if got := listSizesOf([]byte(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
