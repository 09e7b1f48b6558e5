// Says which attributes of which resources are over their thresholds (thesis §3.2.4).
#define NUM_RESOURCES 4 // of one host
struct input {
    struct resource {
        int num_attributes;
        int attribute[8];
        int threshold[8];
    } resource[NUM_RESOURCES];
};
struct output {
    struct { int exceeded[8]; } resource[NUM_RESOURCES];
};
{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}
