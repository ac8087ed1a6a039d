package kind

// FieldPath is the place of a selectable field in an object's JSON.
type FieldPath struct {
	Name            string // of the field
	Section, Member string // path of the field: a member of a section of the object
	// if set: a list in the section; the member Item of its first element takes precedence over Member
	List, Item     string
	IsBool         bool // the value is a boolean, false if missing; otherwise it is a string
	IsMostlyUnique bool // almost every object has a different value
}
